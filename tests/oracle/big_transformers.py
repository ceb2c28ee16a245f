"""The numbers of a first step of the three big transformers, a minute that ./dev test leaves out and CI does not:
    build/venv/bin/python tests/oracle/run.py --gcomp build/bin/gcomp --results /dev/stdout --big
"""
from full_size import TRANSFORMERS, FullSize, add_tests


class BigTransformers(FullSize):
    pass


add_tests(BigTransformers, "test_first_step_of", TRANSFORMERS, "check_first_step")
del FullSize  # no tests of its own
