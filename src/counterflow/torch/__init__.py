"""Problems from PyTorch modules: PyTorch computes loss, gradient and Hessian-vector products.

    import counterflow as cf
    import counterflow.torch

    problem, params = cf.torch.problem(module, loss, inputs, targets)
    params = cf.torch.params(module)
    module = cf.torch.load(module, params)

Hessian-vector products are taken backward through the gradient (reverse over reverse), so that
every operation with a double backward works; forward mode lacks common ones. Derivatives of them
are refused: PyTorch's third derivatives of fused normalization layers are wrong without a word.
"""

try:
    from .bridge import load as load, params as params, problem as problem
except ImportError as error:
    raise ImportError(
        "`counterflow.torch` needs PyTorch 2.3 or newer, which cannot be imported here: "
        "pip install '.[torch]' in a clone of counterflow"
    ) from error
