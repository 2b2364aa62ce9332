from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="mylinear",
    ext_modules=[CppExtension("mylinear", ["mylinear.cpp"])],
    cmdclass={"build_ext": BuildExtension},
)
