// For the sake of what it is linked to.
__attribute__((visibility("default"))) int module_is_empty = 1;
