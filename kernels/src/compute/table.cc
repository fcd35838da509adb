#include "compute/kernels.h"

#define FUSELINE_QUOTE(text) #text
#define FUSELINE_NAME(macro) FUSELINE_QUOTE(macro)

namespace fuseline::FUSELINE_ISA {

extern const Routines table;
const Routines table = {
    FUSELINE_NAME(FUSELINE_ISA),
#define FUSELINE_ENTRY(name, Arguments) name,
    FUSELINE_ROUTINES(FUSELINE_ENTRY) FUSELINE_LAYOUTS(FUSELINE_ENTRY)
#undef FUSELINE_ENTRY
};

}  // namespace fuseline::FUSELINE_ISA
