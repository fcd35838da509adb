"""The report: one self-contained HTML page that shows what every pass did."""

from fuseline.engine.report.history import History, PassRow
from fuseline.engine.report.page import page, write_page
from fuseline.engine.report.reports import report_of_diff, report_of_model

__all__ = ["History", "PassRow", "page", "report_of_diff", "report_of_model", "write_page"]
