"""VMFB to callable: device, tensors in and out, SpecializedExecutable."""
