//! The part of the NumPy script that is the same for every plan: the mesh, blocks, and collectives as small functions.
//!
//! It follows the definitions (array_split, row-major ranks, what each placement holds), not this crate's schedules, so
//! that the script checks them.

/// Functions over lists of blocks, one block per rank. `SIZES` and `AXES` are defined before it.
pub(super) const PRELUDE: &str = r#"
# ---- the mesh: ranks are row-major over its axes -------------------------------------------------

P = int(np.prod([SIZES[axis] for axis in AXES]))
RANKS = range(P)


def coords(rank):
    """Position of a rank along every axis."""
    return dict(zip(AXES, np.unravel_index(rank, [SIZES[axis] for axis in AXES])))


def group(rank, axes):
    """The ranks that differ from `rank` along these axes only, in order."""
    mine = coords(rank)
    return [q for q in RANKS if all(coords(q)[a] == mine[a] for a in AXES if a not in axes)]


# ---- layouts: a placement per axis, "R", "S(0)", "S(1)" ..., "P", "Pmax" --------------------------


def axes_of(layout, *placements):
    """The axes with one of these placements."""
    return [axis for axis, placement in zip(AXES, layout) if placement in placements]


def sharded(layout):
    return [axis for axis, placement in zip(AXES, layout) if placement.startswith("S")]


def block(shape, layout, rank):
    """Slices of the block that a rank holds; a dim that several axes split is split by the earlier axis first."""
    slices = []
    for dim, n in enumerate(shape):
        lo, hi = 0, n
        for axis in axes_of(layout, f"S({dim})"):
            size, i = SIZES[axis], coords(rank)[axis]
            base, longer = divmod(hi - lo, size)  # np.array_split
            start = lo + i * base + min(i, longer)
            lo, hi = start, start + base + (i < longer)
        slices.append(slice(lo, hi))
    return tuple(slices)


def local(shape, layout, rank):
    """Shape of the block that a rank holds."""
    return tuple(s.stop - s.start for s in block(shape, layout, rank))


def scatter(value, layout):
    """The block of every rank; leaves are never pending."""
    return [np.array(value[block(value.shape, layout, r)]) for r in RANKS]


def gather(x, shape, layout):
    """The global value; copies must be equal, pending terms are summed."""
    x = all_reduce(x, axes_of(layout, "P"))
    x = all_max(x, axes_of(layout, "Pmax"))
    whole = np.zeros(shape, np.asarray(x[0]).dtype)
    for r in RANKS:
        whole[block(shape, layout, r)] = x[r]
    for r in RANKS:
        assert np.array_equal(whole[block(shape, layout, r)], x[r]), "copies differ"
    return whole


# ---- transitions: lists of blocks to lists of blocks ----------------------------------------------


def all_reduce(x, axes):
    """Every rank ends with the sum of its group's terms."""
    return [functools.reduce(np.add, [x[q] for q in group(r, axes)]) for r in RANKS]


def all_max(x, axes):
    """Every rank ends with the maximum of its group's terms."""
    return [functools.reduce(np.maximum, [x[q] for q in group(r, axes)]) for r in RANKS]


def regroup(x, shape, src, dst):
    """Every rank takes its new block from the ranks that hold parts of it."""
    out = []
    for r in RANKS:
        whole = np.zeros(shape, np.asarray(x[r]).dtype)
        for q in group(r, sharded(src)):
            whole[block(shape, src, q)] = x[q]
        out.append(np.array(whole[block(shape, dst, r)]))
    return out


def all_gather(x, shape, src, dst):
    """S -> R: blocks become wholes."""
    return regroup(x, shape, src, dst)


def all_to_all(x, shape, src, dst):
    """S -> S: blocks of one dim become blocks of another."""
    return regroup(x, shape, src, dst)


def take_slice(x, shape, src, dst):
    """R -> S: every rank keeps its block; nothing is sent."""
    return regroup(x, shape, src, dst)


def reduce_scatter(x, shape, src, dst, axes, combine=all_reduce):
    """P -> S: terms are combined, every rank keeps its block."""
    reduced = ["R" if axis in axes else p for axis, p in zip(AXES, src)]
    return regroup(combine(x, axes), shape, reduced, dst)


def reshard(x, shape, src, dst, axes, combine=all_reduce):
    """Any layout to any other: terms on these axes are combined, then blocks regrouped."""
    return reduce_scatter(x, shape, src, dst, axes, combine)


def mask(x, axes, identity=0):
    """R -> P: the axis' first rank keeps the value, the others hold the identity; nothing is sent."""
    return [np.array(x[r]) if all(coords(r)[a] == 0 for a in axes) else np.full_like(x[r], identity) for r in RANKS]


def pad(x, shape, src, dst, identity=0):
    """S -> P: the own block, the identity elsewhere; nothing is sent."""
    out = []
    for r in RANKS:
        whole = np.full(shape, identity, np.asarray(x[r]).dtype)
        whole[block(shape, src, r)] = x[r]
        out.append(np.array(whole[block(shape, dst, r)]))
    return out


def same(x):
    """The same blocks under another name."""
    return x


# ---- ops that NumPy has no single name for ---------------------------------------------------------


def gelu(a):
    return 0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def int_div(a, b):
    """Division towards zero."""
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def lowest(a):
    """What a maximum over nothing is."""
    return -np.inf if np.asarray(a).dtype.kind == "f" else np.iinfo(np.asarray(a).dtype).min


def whole(shape):
    """Slices of the whole."""
    return tuple(slice(0, n) for n in shape)


def iota(dim, slices, dtype):
    """The index along a dim."""
    index = np.arange(slices[dim].start, slices[dim].stop).astype(dtype)
    others = tuple(d for d in range(len(slices)) if d != dim)
    return np.broadcast_to(np.expand_dims(index, others), tuple(s.stop - s.start for s in slices))


def uniform(key, stream, shape, slices):
    """Philox 4x32-10: the counter is (element // 4, stream), each counter makes the words of four elements."""
    u = np.uint64
    element = np.arange(int(np.prod(shape)), dtype=u).reshape(shape)[slices]
    low, half, four = u(0xFFFFFFFF), u(32), u(4)
    c = [element // four & low, element // four >> half, np.full_like(element, stream), np.zeros_like(element)]
    k0, k1 = int(key) & 0xFFFFFFFF, int(key) >> 32 & 0xFFFFFFFF
    for _ in range(10):
        a, b = u(0xD2511F53) * c[0], u(0xCD9E8D57) * c[2]
        c = [b >> half ^ c[1] ^ u(k0), b & low, a >> half ^ c[3] ^ u(k1), a & low]
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    word = np.choose((element % four).astype(np.int64), c)
    return (word >> u(8)).astype(np.float64) / 2.0**24


def take(a, dim, start, step, count):
    """Elements start, start + step ... of a dim."""
    return np.take(a, start + step * np.arange(count), axis=dim)


def put(a, dim, start, step, result):
    """Writes a to the places start, start + step ... of a dim."""
    places = [slice(None)] * result.ndim
    places[dim] = start + step * np.arange(a.shape[dim])
    result[tuple(places)] = a
    return result


def cumsum(a, dim, turn):
    """Running sums, the dim turned before and after."""
    along = np.moveaxis(np.asarray(a), dim, 0)[turn]
    return np.moveaxis(np.cumsum(along, axis=0, dtype=along.dtype)[turn], 0, dim)


def lookup(table, ids, first):
    """Rows of a block of a table that starts at row `first`; zeros for ids of other blocks."""
    row = np.asarray(ids) - first
    nothing = np.zeros((1,) + table.shape[1:], table.dtype)
    held = (row >= 0) & (row < len(table))
    return np.concatenate([table, nothing])[np.where(held, row, len(table))]


def scatter_add(ids, terms, first, last):
    """Rows first..last of the sums of terms by id."""
    row = np.asarray(ids) - first
    result = np.zeros((last - first,) + terms.shape[row.ndim :], terms.dtype)
    held = (row >= 0) & (row < last - first)
    np.add.at(result, row[held], terms[held])
    return result


def one_hot(labels, first, last, dtype):
    """Columns first..last of the indicator of each label."""
    return (np.asarray(labels)[..., None] == np.arange(first, last)).astype(dtype)
"#;
