"""The eight networks of ../shared/models/architectures: the numbers of a first step, but for the three big transformers, which are
imported and differentiated here; big_transformers.py compares their numbers. By themselves:
    build/venv/bin/python tests/oracle/run.py --gcomp build/bin/gcomp --results /dev/stdout --filter architectures
"""
from full_size import CONVOLUTIONAL, TRANSFORMERS, FullSize, add_tests


class Architectures(FullSize):
    pass


add_tests(Architectures, "test_first_step_of", CONVOLUTIONAL + ["lstm_ptb"], "check_first_step")
add_tests(Architectures, "test_attentions_of", TRANSFORMERS, "check_attentions")
del FullSize  # no tests of its own
