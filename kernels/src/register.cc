extern "C" int fuseline_abi() { return 1; }
