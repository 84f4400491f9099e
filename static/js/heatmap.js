// A cluster's GPUs on one canvas: row a node, cell a GPU. The table below it says the same without this.
(() => {
  "use strict";
  const box = document.querySelector("[data-heatmap]");
  if (!box) return;
  const data = JSON.parse(document.getElementById(box.dataset.heatmap).textContent);
  const { nodes, groups, pods, parts, names, xid, top, unit, word } = data;
  const canvas = box.querySelector("canvas"), pick = box.querySelector(".pick"), draw = canvas.getContext("2d");

  // Each cell once, node after node: its place in the data's columns (-1: a GPU that telemetry does not know), the column
  // it is drawn in, and how much of that: instances of one GPU share a column.
  const first = [], column = [], index = [];
  let most = 1, count = 0;
  nodes.forEach(([, , , known, missing]) => {
    first.push(column.length);
    let at = -1;
    for (let number = 0; number < known; number += 1, count += 1) {
      if (!parts[count] || parts[count][0] === 0) at += 1;
      column.push(at);
      index.push(count);
    }
    for (let number = 0; number < missing; number += 1) { at += 1; column.push(at); index.push(-1); }
    most = Math.max(most, at + 1);
  });
  first.push(column.length);
  const small = nodes.length * most > 1024;
  let cell = small ? 9 : 30; // narrower on a phone, so that a node's GPUs stay side by side
  const high = small ? 9 : 20, gap = small ? 1 : 2, space = small ? 10 : 24;
  // In whole pixels, like all that is drawn: what is cleared at half of one leaves its edge behind.
  const label = small ? 0 : Math.round(Math.min(150, 16 + 6.6 * Math.max(...nodes.map((node) => node[1].length))));
  const pitch = high + gap, title = groups.length > 1 || groups[0] ? 24 : 0;
  let paper = false; // while it is printed: in light colors, as the legend beside it
  let block = 0, bands = [], across = 1, scale = 1, colors = null, none = null, at = null; // at: [node, cell of all]

  // Colors come from the style sheet, through a probe of each class: the theme may change while the page is open.
  const read = () => {
    const probe = document.createElement("span");
    if (paper) probe.style.colorScheme = "light";
    box.append(probe);
    const of = (name, what) => { probe.className = name; return getComputedStyle(probe)[what]; };
    const steps = [..."012345678"].map((step) => of(`q${step}`, "backgroundColor"));
    const found = { steps, none: of("hm-none", "color"), ground: of("hm-none", "backgroundColor") };
    Object.assign(found, { held: of("hm-held", "color"), ink: of("hm-ink", "color"), quiet: of("hm-ink", "outlineColor") });
    Object.assign(found, { hot: of("hm-hot", "color"), mid: of("hm-hot", "outlineColor"), bad: of("hm-bad", "color") });
    probe.remove();
    return found;
  };
  const hatch = () => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.fillStyle = colors.ground;
    pen.fillRect(0, 0, 6, 6);
    pen.strokeStyle = colors.none;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) { pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); }
    pen.stroke();
    return draw.createPattern(tile, "repeat");
  };
  // Groups stand one below the other, each in as many stacks of nodes as the page is wide.
  const layOut = (wide) => {
    cell = small ? 9 : Math.min(30, Math.max(10, Math.floor((wide - label) / most) - gap));
    block = label + most * (cell + gap);
    across = Math.max(1, Math.floor((wide + space) / (block + space)));
    bands = [];
    let y = 0, widest = 1;
    for (let start = 0; start < nodes.length;) {
      let end = start;
      while (end < nodes.length && nodes[end][2] === nodes[start][2]) end += 1;
      const rows = Math.ceil((end - start) / across), stacks = Math.ceil((end - start) / rows);
      widest = Math.max(widest, stacks);
      bands.push({ start, end, rows, y: y + title, name: groups[nodes[start][2]] });
      y += title + rows * pitch + (title ? 10 : 0);
      start = end;
    }
    return [widest * (block + space) - space, y + 2];
  };
  const bandOf = (node) => {
    let low = 0, high_ = bands.length - 1;
    while (low < high_) { const middle = (low + high_ + 1) >> 1; if (bands[middle].start <= node) low = middle; else high_ = middle - 1; }
    return bands[low];
  };
  const corner = (node) => {
    const band = bandOf(node), place = node - band.start;
    return [Math.floor(place / band.rows) * (block + space) + label, band.y + (place % band.rows) * pitch];
  };
  const span = (number) => { // left edge within its node, and width
    const part = parts[index[number]], left = column[number] * (cell + gap);
    if (!part) return [left, cell];
    const one = cell / part[1];
    return [left + part[0] * one, Math.max(1, one - (part[0] < part[1] - 1 ? 1 : 0))];
  };
  const step = (value) => Math.min(8, Math.max(0, Math.floor((value * 9) / top)));

  const paintCell = (left, y, number) => {
    const place = index[number], value = place < 0 ? -1 : data.value[place], [shift, wide] = span(number), x = left + shift;
    draw.fillStyle = value < 0 ? none : colors.steps[step(value)];
    draw.fillRect(x, y, wide, high);
    if (place < 0) return;
    if (data.words[data.states[place]][0] === "held") ring(x, y, wide, colors.held, small ? 1.5 : 2);
    if (!small && value >= 0 && wide > 18) {
      const deep = step(value);
      draw.textAlign = "center";
      draw.font = `${cell < 26 ? 9 : 11}px system-ui, sans-serif`;
      draw.fillStyle = deep >= 5 ? colors.hot : deep === 4 ? colors.mid : colors.ink;
      draw.fillText(value, x + wide / 2, y + high / 2 + 0.5);
    }
    if (xid[place]) { // a corner, whatever the color below it
      const size = Math.min(wide, small ? 4 : 7);
      draw.fillStyle = colors.bad;
      draw.beginPath();
      draw.moveTo(x + wide - size, y); draw.lineTo(x + wide, y); draw.lineTo(x + wide, y + size);
      draw.fill();
    }
  };
  const paintNode = (node) => {
    const [left, y] = corner(node);
    for (let number = first[node]; number < first[node + 1]; number += 1) paintCell(left, y, number);
  };
  const paint = () => {
    if (paper) draw.clearRect(0, 0, canvas.width, canvas.height); // one that is sized anew prints as nothing
    else {
      const [width, height] = layOut(box.querySelector(".heatmap-c").clientWidth);
      scale = Math.min(window.devicePixelRatio || 1, 16000 / height);
      canvas.width = width * scale;
      canvas.height = height * scale;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      draw.scale(scale, scale);
    }
    colors = read();
    none = hatch();
    draw.textBaseline = "middle";
    draw.textAlign = "left";
    draw.fillStyle = colors.quiet;
    draw.font = "600 12px system-ui, sans-serif";
    if (title) for (const band of bands) draw.fillText(`${band.name}: ${band.end - band.start} node${band.end - band.start === 1 ? "" : "s"}`, 0, band.y - 11);
    draw.font = "11px ui-monospace, monospace";
    if (label) nodes.forEach((node, number) => { const [left, y] = corner(number); draw.fillText(node[1], left - label, y + high / 2); });
    for (let node = 0; node < nodes.length; node += 1) paintNode(node);
    mark(at);
    performance.mark("heatmap"); // the first full picture; the bench reads it
  };
  // Only what was marked is drawn again: 40,000 cells are drawn once, not at every move.
  const clear = () => {
    if (!at) return;
    const [left, y] = corner(at[0]);
    draw.clearRect(left - 1, y - 1, most * (cell + gap) + 1, high + 2);
    const band = bandOf(at[0]);
    for (const near of [at[0] - 1, at[0], at[0] + 1]) if (near >= band.start && near < band.end) paintNode(near);
  };
  const mark = (next) => {
    at = next;
    if (!at) return;
    const [left, y] = corner(at[0]), [shift, wide] = span(at[1]);
    ring(left + shift, y, wide, colors.ink, 2, 1);
  };
  const ring = (x, y, wide, color, width, out = 0) => {
    draw.strokeStyle = color;
    draw.lineWidth = width;
    draw.strokeRect(x + width / 2 - out, y + width / 2 - out, wide - width + 2 * out, high - width + 2 * out);
  };

  const line = (list, key, text) => {
    if (text === "") return;
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = key;
    dd.textContent = text;
    list.append(dt, dd);
  };
  const said = (value, of) => (value < 0 ? "no data" : `${value} ${of}`);
  const show = (next) => {
    clear();
    mark(next);
    const [key, name, group] = nodes[at[0]], place = index[at[1]];
    const head = document.createElement("p"), link = document.createElement("a"), list = document.createElement("dl");
    link.href = `/nodes/${key}/#gpus`;
    link.textContent = name;
    link.className = "mono";
    head.append(link, place < 0 ? ", a GPU without telemetry" : `, GPU ${names[place] ?? at[1] - first[at[0]]}`);
    list.className = "kv";
    line(list, "State", place < 0 ? "Unknown" : data.words[data.states[place]][1]);
    if (place >= 0) {
      const watts = said(data.power[place], parts[place] ? "W, its board’s" : "W");
      line(list, word, word === "Power" ? watts : said(data.value[place], unit));
      if (word !== "Busy") line(list, "Busy", said(data.busy[place], "%"));
      if (word !== "Power") line(list, "Power", watts);
      if (word !== "Temperature") line(list, "Temperature", said(data.heat[place], "°C"));
      line(list, "Pod", data.pod[place] < 0 ? "none" : pods[data.pod[place]]);
      line(list, "Last XID", xid[place] ? String(xid[place]) : "");
      line(list, "Sample", box.dataset.age);
    }
    line(list, "Group", groups[group]);
    pick.replaceChildren(head, list);
  };
  const found = (event) => {
    const bounds = canvas.getBoundingClientRect(), x = event.clientX - bounds.left, y = event.clientY - bounds.top;
    const band = bands.find((one) => y >= one.y && y < one.y + one.rows * pitch);
    if (!band) return null;
    const stack = Math.floor(x / (block + space)), inside = x - stack * (block + space) - label;
    const node = band.start + stack * band.rows + Math.floor((y - band.y) / pitch);
    if (inside < 0 || node >= band.end) return null;
    for (let number = first[node]; number < first[node + 1]; number += 1) {
      const [left, wide] = span(number);
      if (inside >= left && inside < left + wide + gap) return [node, number];
    }
    return null;
  };

  canvas.addEventListener("pointermove", (event) => {
    const next = found(event);
    if (next && String(next) !== String(at)) show(next);
  });
  canvas.addEventListener("click", (event) => {
    const next = found(event);
    if (next) show(next);
  });
  const open = () => at && location.assign(`/nodes/${nodes[at[0]][0]}/#gpus`);
  canvas.addEventListener("dblclick", open);
  canvas.addEventListener("focus", () => at || show([0, 0]));
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter") open();
    if (!at) return;
    const along = { ArrowLeft: -1, ArrowRight: 1, Home: -1e6, End: 1e6 }[event.key] ?? 0;
    const down = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 }[event.key] ?? 0;
    if (!along && !down) return;
    event.preventDefault();
    const node = Math.min(nodes.length - 1, Math.max(0, at[0] + down));
    const most_ = first[node + 1] - first[node] - 1;
    show([node, first[node] + Math.min(most_, Math.max(0, at[1] - first[at[0]] + along))]);
    const y = canvas.getBoundingClientRect().top + corner(node)[1]; // the mark stays in view
    if (y < 80 || y > window.innerHeight - 60) window.scrollBy(0, y - window.innerHeight / 2);
  });
  new ResizeObserver(() => paper || paint()).observe(box.querySelector(".heatmap-c"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  for (const event of ["beforeprint", "afterprint"]) window.addEventListener(event, () => { paper = event === "beforeprint"; paint(); });
})();
