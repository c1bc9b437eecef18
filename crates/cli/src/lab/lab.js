"use strict";
(() => {
  const lab = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children);
    return node;
  };
  const number = (x) => (Object.is(x, -0) ? "0" : String(x));
  const size = (shape) => (shape.length ? shape.join("×") : "scalar");

  // ---- tensors as tables ----
  // `other`: numbers to compare with; cells that differ are outlined.
  const table = (local, other) => {
    const columns = local.shape.length > 1 ? local.shape[1] : local.shape.length ? local.v.length : 1;
    const rows = columns ? local.v.length / columns : 0;
    const body = el("tbody");
    for (let r = 0; r < rows; r++) {
      const row = el("tr");
      for (let c = 0; c < columns; c++) {
        const i = r * columns + c;
        row.append(el("td", { class: other && other[i] !== local.v[i] ? "x" : undefined }, number(local.v[i])));
      }
      body.append(row);
    }
    return rows ? el("table", { class: "m" }, body) : el("i", {}, "empty");
  };
  const tensor = (title, local, kind, other) =>
    el("div", { class: `tensor ${kind}${other ? " bad" : ""}` }, el("div", { class: "cap" }, `${title} [${size(local.shape)}]`), table(local, other));

  // ---- state ----
  const state = { mesh: 0, layout: 0, fault: 0, step: 0 };
  const layouts = () => lab.meshes[state.mesh].layouts;
  const scene = () => layouts()[state.layout];
  const variant = () => scene().variants[state.fault];

  // ---- controls ----
  const radio = (group, value, text, checked, missing, change) => {
    const input = el("input", { type: "radio", name: group, value, id: `${group}-${value}` });
    input.checked = checked;
    input.disabled = Boolean(missing);
    input.addEventListener("change", change);
    return el("label", { for: input.id, class: missing ? "off" : undefined, title: missing || undefined }, input, " ", text);
  };
  const controls = () => {
    at("devices").replaceChildren(...lab.meshes.map((mesh, i) =>
      radio("devices", mesh.devices, String(mesh.devices), i === state.mesh, null, () => choose({ mesh: i }))));
    at("layout").replaceChildren(...layouts().map((s, i) => {
      const option = el("option", { value: i }, s.layout);
      option.selected = i === state.layout;
      return option;
    }));
    at("faults").replaceChildren(...scene().variants.map((v, i) =>
      radio("fault", i, v.title, i === state.fault, v.missing, () => choose({ fault: i }))));
    const missing = scene().variants.filter((v) => v.missing).map((v) => `${v.title}: ${v.missing}`);
    at("note").textContent = missing.length ? `Not here — ${missing.join(" ")}` : "";
  };
  const choose = (change) => {
    const focused = document.activeElement && document.activeElement.id;
    Object.assign(state, change);
    if (variant().missing) state.fault = 0;
    if (change.step === undefined) state.step = variant().at ?? 0;
    draw();
    if (focused && at(focused)) at(focused).focus();
  };

  // ---- steps ----
  const list = () => {
    const items = [];
    let phase = "";
    variant().steps.forEach((step, i) => {
      if (step.phase !== phase) items.push(el("li", { class: "phase" }, (phase = step.phase)));
      const kind = [step.moves ? "moves" : "", i === variant().at ? "fault" : ""].join(" ").trim();
      const item = el("li", { class: kind || undefined, "data-step": i },
        el("span", { class: "op" }, step.op.split("(")[0]), el("span", {}, step.name), el("span", { class: "lay" }, step.layout));
      item.addEventListener("click", () => go(i));
      items.push(item);
    });
    at("list").replaceChildren(...items);
  };
  const sentence = (step) => {
    if (step.moves) {
      const sent = step.moves.messages.map(([from, to, n]) => `${from}→${to}: ${n}`).join(", ");
      return `Sent per rank: ${step.moves.bytes.join(", ")} bytes. Elements from → to: ${sent || "none"}. ${step.moves.why}`;
    }
    if (step.op === "taken for") return "Nothing is done: the value is taken to lie so.";
    if (step.pending) return "Each rank holds a term (hatched); the value is the sum of the terms.";
    if (step.layout.startsWith("S")) return "Each rank holds a block, complete.";
    return step.operands.length ? "Each rank computes all of it." : "Each rank holds all of it.";
  };
  const stage = () => {
    const v = variant();
    const step = v.steps[state.step];
    if (!step) {
      at("stage").replaceChildren(el("p", { class: "no" }, v.stopped ? `The runtime refuses this plan: ${v.stopped}` : ""));
      return;
    }
    const ranks = step.ranks.map((local, r) => {
      const operands = step.operands.map((o) => tensor(v.steps[o].name, v.steps[o].ranks[r], v.steps[o].pending ? "term" : ""));
      return el("div", { class: "rank" }, el("b", {}, `rank ${r}`), ...operands,
        tensor(step.operands.length ? `→ ${step.name}` : step.name, local, `result${step.pending ? " term" : ""}`));
    });
    if (step.whole) ranks.push(el("div", { class: "rank" }, el("b", {}, "sum of the terms"), tensor(step.name, step.whole, "result")));
    const shapes = step.operands.length
      ? step.ranks.map((local, r) => `rank ${r}: ${step.operands.map((o) => `[${size(v.steps[o].ranks[r].shape)}]`).join(" , ")} → [${size(local.shape)}]`).join("; ")
      : "";
    at("stage").replaceChildren(
      el("h3", { style: "margin-top:0" }, el("code", {}, step.op), ` ${step.name} : ${step.layout}`),
      el("p", { id: "sentence" }, sentence(step)),
      el("p", {}, el("code", { id: "shapes" }, shapes)),
      el("div", { class: "ranks" }, ...ranks));
  };
  const mark = () => {
    const count = variant().steps.length;
    at("count").textContent = count ? `step ${state.step + 1} of ${count}` : "no steps";
    for (const item of at("list").children) {
      if (item.dataset.step === String(state.step)) {
        item.setAttribute("aria-current", "step");
        const box = at("list");
        const top = item.offsetTop - box.offsetTop;
        if (top < box.scrollTop + 30 || top > box.scrollTop + box.clientHeight - 40) box.scrollTop = top - box.clientHeight / 2;
      } else item.removeAttribute("aria-current");
    }
    at("first").disabled = at("previous").disabled = state.step === 0;
    at("last").disabled = at("next").disabled = state.step + 1 >= count;
  };
  const go = (step) => {
    state.step = Math.max(0, Math.min(step, variant().steps.length - 1));
    stage();
    mark();
  };

  // ---- verdict ----
  const verdict = () => {
    const v = variant();
    const says = v.check.length
      ? [el("p", { class: "no", id: "check" }, `check: ${v.check.length} violation${v.check.length === 1 ? "" : "s"}; the plan is not right`),
         el("ul", { class: "check" }, ...v.check.map((line) => el("li", {}, el("code", {}, line))))]
      : [el("p", { class: "ok", id: "check" }, "check: the plan is right"),
         ...(state.fault ? [el("p", {}, "The fault is where the blocks are put together, outside the plan: only the numbers show it.")] : [])];
    const rows = v.values.map((value) => {
      const parts = value.found.map((local, r) => tensor(`rank ${r}`, local, "", value.layout === "R" && !value.equal ? value.expected.v : undefined));
      return el("tr", { "data-value": value.name },
        el("td", {}, el("b", {}, value.name), " ", el("code", {}, value.layout)),
        el("td", {}, tensor("one device", value.expected, "")),
        el("td", {}, el("div", { class: "ranks" }, ...parts)),
        el("td", { class: `says ${value.equal ? "ok" : "no"}` }, value.diagnosis));
    });
    const compare = rows.length
      ? [el("div", { class: "compare", tabindex: 0, role: "region", "aria-label": "Values" }, el("table", {},
          el("thead", {}, el("tr", {}, ...["value", "expected", "found", "diagnose says"].map((t) => el("th", {}, t)))), el("tbody", {}, ...rows)))]
      : [];
    at("verdict").replaceChildren(...says, ...compare);
  };
  const draw = () => { controls(); list(); go(state.step); verdict(); };

  at("model").textContent = lab.model;
  at("layout").addEventListener("change", (e) => choose({ layout: Number(e.target.value) }));
  at("first").addEventListener("click", () => go(0));
  at("previous").addEventListener("click", () => go(state.step - 1));
  at("next").addEventListener("click", () => go(state.step + 1));
  at("last").addEventListener("click", () => go(Infinity));
  at("list").addEventListener("keydown", (e) => {
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[e.key];
    if (by) { e.preventDefault(); go(state.step + by); }
  });
  state.layout = Math.max(0, layouts().findIndex((s) => s.layout === "megatron"));
  draw();

  // ---- the linear map ----
  const { x, steps, maps } = lab.map;
  const svg = (tag, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const plane = at("plane");
  for (let i = -5; i <= 5; i++) {
    const kind = i === 0 ? "axis" : "grid";
    plane.append(svg("line", { class: kind, x1: i, x2: i, y1: -5, y2: 5 }), svg("line", { class: kind, x1: -5, x2: 5, y1: i, y2: i }));
  }
  // Up is positive: y is drawn negated.
  const points = (a, b) => [[0, 0], [a, b], [a, b + a], [0, a]].map(([px, py]) => `${px},${-py}`).join(" ");
  const image = svg("polygon", { class: "image", points: points(1, 0) });
  plane.append(svg("polygon", { class: "unit", points: points(1, 0) }), image);
  for (const [id, start] of [["scale", 1.5], ["shear", 1]]) {
    Object.assign(at(id), { min: 0, max: steps.length - 1, step: 1, value: steps.indexOf(start) });
  }
  const map = () => maps[Number(at("scale").value) * steps.length + Number(at("shear").value)];
  let frame = 0;
  const rest = (a, b) => { cancelAnimationFrame(frame); image.setAttribute("points", points(a, b)); };
  const values = () => {
    const m = map();
    at("scale-value").textContent = m.a;
    at("shear-value").textContent = m.b;
    const row = (v) => ({ shape: [1, v.length], v });
    const block = (shape, v) => ({ shape, v });
    at("map-values").replaceChildren(
      el("p", {}, "The final map, wherever the square is on its way: ", el("b", { id: "det" }, `determinant ${m.det}`), `, x·M = [${m.sum.map(number).join(", ")}].`),
      el("div", { class: "ranks" }, el("div", { class: "rank" }, el("b", {}, "one device"), tensor("x", row(x), ""), tensor("M", block([2, 2], [m.a, m.b, 0, m.a]), ""), tensor("→ x·M", row(m.sum), "result"))),
      el("h4", {}, "M by columns: nothing to add"),
      el("div", { class: "ranks" }, ...m.columns.map((v, r) => el("div", { class: "rank" }, el("b", {}, `rank ${r}`),
        tensor("x", row(x), ""), tensor(`column ${r}`, block([2, 1], r ? [m.b, m.a] : [m.a, 0]), ""), tensor("→ element", row(v), "result")))),
      el("h4", {}, "M by rows: terms, and their sum"),
      el("div", { class: "ranks" }, ...m.rows.map((v, r) => el("div", { class: "rank" }, el("b", {}, `rank ${r}`),
        tensor(`x${r}`, row([x[r]]), ""), tensor(`row ${r}`, block([1, 2], r ? [0, m.a] : [m.a, m.b]), ""), tensor("→ term", row(v), "result term"))),
        el("div", { class: "rank" }, el("b", {}, "all_reduce"), tensor("sum", row(m.sum), "result"))));
  };
  for (const id of ["scale", "shear"]) at(id).addEventListener("input", () => { rest(1, 0); values(); });
  at("map-reset").addEventListener("click", () => rest(1, 0));
  at("map-step").addEventListener("click", () => {
    const m = map();
    cancelAnimationFrame(frame);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) { rest(m.a, m.b); return; }
    const start = performance.now();
    const move = (now) => {
      const t = Math.min(1, (now - start) / 900);
      image.setAttribute("points", points(1 + t * (m.a - 1), t * m.b));
      if (t < 1) frame = requestAnimationFrame(move);
    };
    frame = requestAnimationFrame(move);
  });
  values();
})();
