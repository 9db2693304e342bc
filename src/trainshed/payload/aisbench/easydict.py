"""EasyDict as configuration files of ais-bench use it, for Pythons without the package `easydict`."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, type-arg"


class EasyDict(dict):
    """A dict whose keys are attributes too; dicts in it, also in lists, become the same."""

    def __init__(self, values=None, **more):
        super().__init__()
        self.update(values or {}, **more)

    def __setattr__(self, name, value):
        self[name] = value

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __delattr__(self, name):
        del self[name]

    def __setitem__(self, name, value):
        super().__setitem__(name, _eased(value))

    def update(self, *values, **more):
        for name, value in dict(*values, **more).items():
            self[name] = value


def _eased(value):
    if isinstance(value, dict) and not isinstance(value, EasyDict):
        return EasyDict(value)
    return type(value)(_eased(item) for item in value) if isinstance(value, (list, tuple)) else value
