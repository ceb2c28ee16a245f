# lit over gcomp-opt: every .gir file here is a test whose RUN lines stand in its comments. ./dev test passes the folders.
# RUN lines say %gcomp-opt and %FileCheck for the tools of the build and of LLVM.
import os
import shutil
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import gir_test

build = os.path.join(here, "../../build")
folders = [lit_config.params.get("bin", os.path.join(build, "bin")), lit_config.params.get("llvm", "")]


def tool(name):
    """Where `name` is; the given folders win over PATH."""
    found = shutil.which(name, path=os.pathsep.join(folder for folder in folders if folder)) or shutil.which(name)
    if not found:
        lit_config.fatal(f"{name} is neither in {folders} nor in PATH")
    return found


config.name = "passes"
config.test_format = gir_test.GirTest(execute_external=False)
config.suffixes = [".gir"]
config.test_exec_root = lit_config.params.get("out", os.path.join(build, "lit"))
config.substitutions.append(("%gcomp-opt", tool("gcomp-opt")))
config.substitutions.append(("%FileCheck", tool("FileCheck") + " --dump-input=fail"))
