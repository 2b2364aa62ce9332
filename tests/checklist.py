"""The requirements by number, and the tests that accept them.

A test that accepts an item carries `@checklist(number)`; `python -m tests.checklist` prints the list. The letters: A
tensors, devices, memory; B operators and modules; C differentiation; D graphs; E compiler; F kernels and foreign code;
G the runtime; H measuring; I distribution; L models and labs.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

import pytest

checklist = pytest.mark.checklist
"""Marks a test as the acceptance of items."""

ITEMS: dict[int, tuple[str, str]] = {
    1: ("A", "a tensor's dtype, shape, strides, offset, storage and device are what numpy's would be"),
    2: ("D", "a graph has operators and tensors, refuses cycles, orders itself and prints"),
    3: ("C", "reverse-mode differentiation gives the lecture's two examples"),
    4: ("G", "functions run by their dependences, in sequence or concurrently, with equal results"),
    5: ("D", "a function gives the same eagerly and captured, branches and loops included or refused"),
    7: ("B", "every operator has its shape rule, its gradient and its kernels"),
    8: ("B", "the kernel that ran has a name, and can be swapped"),
    9: ("E", "matmuls that share an operand become one"),
    10: ("G", "independent work runs at the same time, and no successor before its inputs end"),
    11: ("B", "the mean over any axes, of odd and empty sizes"),
    14: ("F", "from a plain loop to CUDA: a tutorial that is run"),
    15: ("F", "a product of matrices in CUDA, with flags for transposition, in float and double"),
    16: ("F", "the layer's forward and backward from one kernel in CUDA"),
    17: ("F", "a function in C++ checks device, contiguity, dtype and shape of its arguments"),
    18: ("F", "functions in C++ are built ahead of time and just in time"),
    19: ("B", "a custom function trains inside a module"),
    21: ("F", "NVIDIA's first program: largest error 0"),
    26: ("F", "headers have the macro for checks; what does not compile is shown at its line"),
    30: ("B", "an operator defined outside the package works everywhere"),
    31: ("B", "a custom linear layer equals the built-in one"),
    32: ("C", "both layouts of a weight have the gradients of the formula"),
    34: ("B", "autograd.Function and nn.Module as in PyTorch"),
    35: ("C", "a saved tensor that is changed in place raises, naming the op"),
    36: ("B", "a Function whose methods are not static raises"),
    37: ("C", "a gradient that nobody needs is not computed"),
    38: ("B", "a layer without bias, and the gradient of the bias"),
    39: ("B", "parameters, their names, state_dict and to()"),
    41: ("A", "random values set in place, the same from the same seed everywhere"),
    42: ("B", "a custom layer drops into a network"),
    43: ("F", "functions in C++ return lists of tensors, and nothing leaks"),
    44: ("F", "the lab's source in C++ compiles unchanged"),
    45: ("F", "functions in C++ have names and descriptions"),
    46: ("F", "matrix product and transposition in C++; a transposition is a view"),
    49: ("L", "a convolution of one's own, in Python, C++ and by threads"),
    50: ("L", "AlexNet of our tensors, operators and layers alone"),
    52: ("D", "AlexNet with one channel and no padding: its shapes, parameters, and PyTorch's scores"),
    53: ("B", "pooling windows that overlap, with padding and ties"),
    54: ("B", "inverted dropout, its modes, seeds and gradient"),
    55: ("A", "views with -1, and what happens without contiguity"),
    56: ("L", "a network prints as its listing"),
    58: ("F", "host code is compiled without a compiler for devices"),
    59: ("B", "an operator that lacks a rule fails when it is defined"),
    60: ("F", "launches that no GPU does are refused by name"),
    61: ("F", "a kernel does the same from every place that calls it"),
    62: ("F", "kernels of one name in three extensions"),
    64: ("F", "what is compiled is found by its content; one file of several is compiled anew"),
    65: ("F", "tensors that are dropped while kernels use them"),
    66: ("L", "the suite whose element 0 was always 0"),
    68: ("F", "a network as a plain sequence of launches"),
    70: ("F", "ReLU in steps, each measured"),
    71: ("F", "kernels that launch kernels"),
    72: ("F", "functions of one file used in another, compiled apart"),
    73: ("A", "views of all kinds read right through every operator; versions count"),
    74: ("A", "devices are found at run time, one object each"),
    75: ("A", "a new device touches no other file"),
    77: ("A", "live bytes return to the baseline"),
    78: ("H", "logs with levels by module, flags of the command line, CHECK_*"),
    79: ("F", "a mode for debugging names the kernel and its line"),
    80: ("F", "1,025 threads, (1, 1, 65) and 0 are refused with what is allowed"),
    85: ("D", "one network, many executions that share its weights"),
    86: ("D", "the order of execution is topological"),
    87: ("D", "building a graph allocates nothing"),
    88: ("D", "shapes are inferred, and errors name the layer"),
    89: ("G", "memory is planned, and takes no more than the sum of all results"),
    92: ("D", "several inputs and outputs everywhere"),
    93: ("D", "branches, joins, skips and shared layers"),
    94: ("D", "structure and shape may change from call to call"),
    97: ("I", "gradients of the parts of a batch add up"),
    98: ("D", "operators composed of operators; losses are graphs"),
    99: ("E", "kernels for every element type that is declared"),
    100: ("A", "operands on two devices raise, naming both"),
    101: ("A", "1,000 networks made and dropped leave nothing"),
    102: ("H", "verbose logs by module"),
    103: ("F", "matrix products of any size, and with transposed operands, by threads"),
    104: ("B", "a 2x2 matrix learns sum and difference under the L1 loss"),
    105: ("H", "a host timer misses asynchronous work, ours does not"),
    107: ("H", "a benchmark warms up, repeats, and gives quantiles"),
    108: ("H", "a profile of nested ranges, whose own times add up"),
    109: ("H", "a table of rows, sorted and limited"),
    110: ("H", "activities choose what is looked at"),
    111: ("H", "a trace for Chrome that a validator accepts"),
    112: ("H", "a handler is called once a cycle, with the number of the step"),
    113: ("H", "schedules of steps with PyTorch's meaning"),
    114: ("H", "files that TensorBoard reads"),
    115: ("H", "steps are ranges of the trace"),
    116: ("H", "square, a*a and a**2, with the bandwidth"),
    117: ("F", "C++ and CUDA from texts"),
    118: ("F", "what is the same is not built again, a flag builds anew, a build directory is kept"),
    119: ("F", "launches of two axes, with guarded borders"),
    120: ("F", "tensors in C++: size, empty_like, zeros, data of a checked dtype"),
    121: ("F", "blocks and threads in many orders; barriers in divergent code"),
    122: ("F", "blocks per multiprocessor, as resources allow"),
    123: ("F", "one kernel for both kinds of devices"),
    124: ("F", "kernels on tiles: the guide's, with its swizzled order"),
    125: ("F", "what a mask leaves out, and what lacks a mask, is found"),
    126: ("E", "a tiled product with shared memory of several widths"),
    127: ("F", "shared memory has a limit"),
    141: ("B", "gradients that vanish and explode, and what helps"),
    142: ("L", "the course's perceptron learns digits as there"),
    145: ("D", "the graph of a logistic regression can be drawn"),
    146: ("D", "logistic regression, step by step as in numpy"),
    147: ("C", "softmax cross-entropy is stable, its gradient is p - y"),
    151: ("E", "passes keep the meaning of fuzzed graphs"),
    152: ("C", "symbolic differentiation, and how expressions grow"),
    153: ("C", "numerical differentiation, and its error against the step"),
    154: ("C", "gradient checks catch every mutant"),
    155: ("C", "what a tape and a gradient graph keep in memory"),
    156: ("C", "gradients are graph"),
    157: ("C", "the same passes run on gradients; gradients of gradients"),
    159: ("C", "shares of a gradient are added without redundant nodes"),
    160: ("F", "what a GPU has, as a table"),
    161: ("F", "kernels that depend on the order of blocks are found"),
    162: ("F", "vector add for any size, none included"),
    163: ("F", "the window sum, naive"),
    164: ("F", "which elements a window has"),
    165: ("F", "loads are counted: 7 for an output, 10 for a block of 4"),
    166: ("F", "the window sum with shared memory, right for every size"),
    167: ("F", "the product with double buffers and register tiles"),
    168: ("E", "register tiles, and their count of loads"),
    169: ("E", "cache tiles that fit"),
    170: ("E", "matmul with packed operands, against the plain loop"),
    171: ("E", "strips of tiles that threads share"),
    172: ("E", "a search over tiles and fusions"),
    175: ("L", "logistic regression by hand and by the framework"),
    177: ("G", "training takes no new memory after the first step"),
    182: ("G", "memory plans: in place, shared by reference counts, aware of concurrency"),
    183: ("G", "memory of a chain grows with the root of its depth"),
    184: ("G", "a mutation-aware engine: reads, writes, recycled memory, generators, communicators"),
    196: ("B", "weights updated in place without allocation"),
    197: ("A", "copies in all directions, at once or beside work, of the right size"),
    198: ("B", "the arithmetic, map and reduce families with their gradients"),
    199: ("H", "sums are bound by memory, products by arithmetic; the limits are measured"),
    201: ("E", "a compiled function: equal results, fewer kernels, no second compilation"),
}
"""The items of the letters A to E that the core answers for, and those of F (kernels, foreign code), G, I and L that
are there."""

DEFECTS: dict[int, str] = {
    1: "window sums: halos at the wrong place, barriers in divergent code",
    2: "a count of loads: 4 threads with radius 3 read 10 inputs",
    4: "a kernel of a lab: results always in float32, launches unchecked",
    5: "a reduction by halves that drops elements, and a mean that counts the padding",
    6: "a matrix product guarded by `or`, with a wrong transposition",
    7: "operators whose gradients ignore what flows back, or replace what is there",
    8: "random values outside of their bounds",
    9: "an order of execution that is not topological",
    10: "a benchmark that is faster than its machine",
    11: "a matrix product without a mask along k",
    12: "no gradient of what is not reached",
}
"""Defects of the originals (section 3). Number 3 is one of a codec, 13 of texts."""


def covered(folder: Path, mark: str = "checklist") -> dict[int, list[str]]:
    """The tests that accept each item, found in the source of the tests."""
    found: dict[int, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                for number in _numbers(node.decorator_list, mark):
                    found[number].append(f"{path.relative_to(folder.parent)}::{node.name}")
    return found


def _numbers(decorators: list[ast.expr], mark: str) -> list[int]:
    calls = [d for d in decorators if isinstance(d, ast.Call) and ast.unparse(d.func).split(".")[-1] == mark]
    return [a.value for call in calls for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, int)]


def main() -> None:
    found = covered(Path(__file__).parent)
    for number, (letter, title) in ITEMS.items():
        tests = found.get(number, [])
        where = tests[0] + (f" and {len(tests) - 1} more" if len(tests) > 1 else "") if tests else "NO TEST"
        print(f"{number:4} {letter}  {title:80}  {where}")
    others = sorted(set(found) - set(ITEMS))
    if others:
        print(f"also: {', '.join(map(str, others))}")
    print(f"{sum(n in found for n in ITEMS)} of {len(ITEMS)} items have a test")
    shown = covered(Path(__file__).parent, "defect")
    for number, title in DEFECTS.items():
        print(f"defect {number:2}  {title:80}  {', '.join(shown.get(number, ['NO TEST']))}")
    sys.exit(0)


if __name__ == "__main__":
    main()
