"""Loss, gradients and a training history of small transformers, in JAX, double precision.

    pip install jax
    python3 transformer.py            writes transformer_gpt.json and transformer_grouped.json beside itself

Nothing here is shared with the Rust code but these formulas. Element j (row-major) of a tensor:

    parameter number o     0.5 sin(0.7 j + 1 + o); scales of norms: 1 + 0.3 sin(0.7 j + 1 + o)
    ids                    (5 j + 3) mod vocabulary
    labels                 (3 j + 1) mod vocabulary
    mask                   0 where j mod 4 = 2, else 1
"""

import json
import pathlib

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)


def shapes(c):
    """Names and shapes of the parameters, in order."""
    d, h, g, f = c["width"], c["heads"], c["kv_heads"], c["hidden"]
    k, r = d // h, h // g
    out = [("tokens.w", (c["vocabulary"], d)), ("tokens.positions", (c["sequence"], d))]
    norm = lambda n: [(n + ".scale", (d,))] + ([(n + ".shift", (d,))] if c["norm"] == "layer" else [])
    linear = lambda n, w, b: [(n + ".w", w)] + ([(n + ".b", b)] if c["bias"] else [])
    heads = (h, k) if r == 1 else (g, r, k)
    for i in range(c["repeat"]):
        b = "block" if c["repeat"] == 1 else f"block.{i}"
        out += norm(b + ".norm1")
        out += linear(b + ".attention.q", (d, *heads), heads)
        out += linear(b + ".attention.k", (d, g, k), (g, k))
        out += linear(b + ".attention.v", (d, g, k), (g, k))
        out += linear(b + ".attention.out", (*heads, d), (d,))
        out += norm(b + ".norm2")
        out += linear(b + ".mlp.up", (d, f), (f,))
        out += linear(b + ".mlp.down", (f, d), (d,))
    out += norm("norm")
    if not c["tied"]:
        out += [("scores.w", (d, c["vocabulary"]))]
    return out


def parameters(c):
    made = {}
    for o, (name, shape) in enumerate(shapes(c)):
        n = 1
        for e in shape:
            n *= e
        wave = jnp.sin(0.7 * jnp.arange(n, dtype=jnp.float64) + 1 + o).reshape(shape)
        made[name] = 1 + 0.3 * wave if name.endswith(".scale") else 0.5 * wave
    return made


def data(c):
    n = c["batch"] * c["sequence"]
    j = jnp.arange(n)
    shape = (c["batch"], c["sequence"])
    ids = ((5 * j + 3) % c["vocabulary"]).reshape(shape)
    labels = ((3 * j + 1) % c["vocabulary"]).reshape(shape)
    mask = jnp.where(j % 4 == 2, 0.0, 1.0).reshape(shape)
    return ids, labels, mask if c["masked"] else jnp.ones(shape)


def logits(c, p, ids):
    d, h, g = c["width"], c["heads"], c["kv_heads"]
    k = d // h

    def norm(name, x):
        if c["norm"] == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p[name + ".scale"]
        return x + p[name + ".shift"] if c["norm"] == "layer" else x

    def linear(name, x, rank):
        w = p[name + ".w"]
        y = jnp.tensordot(x, w, axes=rank)
        return y + p[name + ".b"] if c["bias"] else y

    x = p["tokens.w"][ids] + p["tokens.positions"]
    s = ids.shape[1]
    for i in range(c["repeat"]):
        b = "block" if c["repeat"] == 1 else f"block.{i}"
        y = norm(b + ".norm1", x)
        q = linear(b + ".attention.q", y, 1).reshape(*ids.shape, h, k)
        # Every head of keys and values serves the query heads of its group.
        keys = jnp.repeat(linear(b + ".attention.k", y, 1), h // g, axis=2)
        values = jnp.repeat(linear(b + ".attention.v", y, 1), h // g, axis=2)
        scores = jnp.einsum("bshk,bthk->bhst", q, keys) / jnp.sqrt(float(k))
        scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -jnp.inf)
        mixed = jnp.einsum("bhst,bthk->bshk", jax.nn.softmax(scores, axis=-1), values)
        w = p[b + ".attention.out.w"].reshape(h * k, d)
        y = mixed.reshape(*ids.shape, h * k) @ w
        x = x + (y + p[b + ".attention.out.b"] if c["bias"] else y)
        y = linear(b + ".mlp.up", norm(b + ".norm2", x), 1)
        y = jax.nn.gelu(y, approximate=True) if c["activation"] == "gelu" else jax.nn.relu(y)
        x = x + linear(b + ".mlp.down", y, 1)
    x = norm("norm", x)
    return x @ (p["tokens.w"].T if c["tied"] else p["scores.w"])


def loss(p, c, ids, labels, mask):
    logp = jax.nn.log_softmax(logits(c, p, ids), axis=-1)
    target = jax.nn.one_hot(labels, c["vocabulary"], dtype=jnp.float64)
    target = target * (1 - c["smoothing"]) + c["smoothing"] / c["vocabulary"]
    return -(target * logp).sum(-1).ravel() @ mask.ravel() / mask.sum()


def train(c, steps=3, lr=1e-2, clip=0.5, b1=0.9, b2=0.999, eps=1e-8, decay=0.01):
    """AdamW with a linear warm-up over two steps, gradients clipped by their global norm."""
    p = parameters(c)
    m = jax.tree.map(jnp.zeros_like, p)
    v = jax.tree.map(jnp.zeros_like, p)
    history, norms = [], []
    for t in range(1, steps + 1):
        value, g = jax.value_and_grad(loss)(p, c, *data(c))
        history.append(float(value))
        norm = jnp.sqrt(sum((x * x).sum() for x in g.values()))
        norms.append(float(norm))
        g = {n: x * jnp.minimum(1.0, clip / norm) for n, x in g.items()}
        rate = lr * min(1.0, t / 2)
        m = {n: b1 * m[n] + (1 - b1) * g[n] for n in p}
        v = {n: b2 * v[n] + (1 - b2) * g[n] ** 2 for n in p}
        step = {n: m[n] / (1 - b1**t) / (jnp.sqrt(v[n] / (1 - b2**t)) + eps) for n in p}
        p = {n: p[n] * (1 - rate * decay) - rate * step[n] for n in p}
    history.append(float(loss(p, c, *data(c))))
    return history, norms, p


def write(name, c):
    value, g = jax.value_and_grad(loss)(parameters(c), c, *data(c))
    history, norms, final = train(c)
    flat = lambda x: [float(e) for e in x.ravel()]
    out = {
        "model": c,
        "jax": jax.__version__,
        "loss": float(value),
        "gradients": {n: flat(g[n]) for n, _ in shapes(c)},
        "training": {"losses": history, "norms": norms, "final": {n: flat(final[n]) for n, _ in shapes(c)}},
    }
    path = pathlib.Path(__file__).with_name(name + ".json")
    path.write_text(json.dumps(out, indent=0) + "\n")


BASE = dict(batch=3, sequence=4, vocabulary=5, width=4, heads=2, kv_heads=2, hidden=6, repeat=1, norm="layer", bias=True)
write("transformer_gpt", {**BASE, "tied": True, "activation": "gelu", "masked": False, "smoothing": 0.0})
write(
    "transformer_grouped",
    {**BASE, "width": 8, "heads": 4, "repeat": 2, "norm": "rms", "bias": False, "tied": False, "activation": "relu",
     "masked": True, "smoothing": 0.1},
)
