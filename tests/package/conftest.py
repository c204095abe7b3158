"""Options of the tests of packages."""


def pytest_addoption(parser):
    parser.addoption("--inferd", default="build/inferd", help="the program, in its build directory")
