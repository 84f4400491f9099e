// A cluster's GPUs on one canvas: row a node, cell a GPU. The table below it says the same without this.
(() => {
  "use strict";
  const box = document.querySelector("[data-heatmap]");
  if (!box) return;
  const { nodes, pods, states, top, unit, word } = JSON.parse(document.getElementById(box.dataset.heatmap).textContent);
  const canvas = box.querySelector("canvas"), pick = box.querySelector(".pick"), draw = canvas.getContext("2d");
  const still = document.createElement("canvas"); // the picture without the mark: 40,000 cells are drawn once, not at every move
  const most = Math.max(1, ...nodes.map((node) => node[2].length + node[3]));
  const small = nodes.length * most > 1024;
  const cell = small ? 9 : 30, high = small ? 9 : 20, gap = small ? 1 : 2, space = small ? 10 : 24;
  const label = small ? 0 : Math.min(150, 16 + 6.6 * Math.max(...nodes.map((node) => node[1].length)));
  const block = label + most * (cell + gap);
  let columns = 1, rows = nodes.length, scale = 1, colours = null, at = null;

  // Colours come from the style sheet, through a probe of each class: the theme may change while the page is open.
  const read = () => {
    const probe = document.createElement("span");
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
    pen.fillStyle = colours.ground;
    pen.fillRect(0, 0, 6, 6);
    pen.strokeStyle = colours.none;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) { pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); }
    pen.stroke();
    return draw.createPattern(tile, "repeat");
  };
  const place = (row, column) => {
    const left = Math.floor(row / rows) * (block + space) + label + column * (cell + gap);
    return [left, (row % rows) * (high + gap)];
  };
  const step = (value) => Math.min(8, Math.max(0, Math.floor((value * 9) / top)));

  const paint = () => {
    const wide = box.querySelector(".heatmap-c").clientWidth;
    columns = Math.max(1, Math.floor((wide + space) / (block + space)));
    rows = Math.ceil(nodes.length / columns);
    columns = Math.ceil(nodes.length / rows);
    const width = Math.max(columns * (block + space) - space, 1), height = rows * (high + gap) + 2;
    scale = Math.min(window.devicePixelRatio || 1, 16000 / height);
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    draw.scale(scale, scale);
    colours = read();
    const none = hatch();
    draw.textBaseline = "middle";
    nodes.forEach(([, name, gpus, missing], row) => {
      if (label) {
        const [left, y] = place(row, 0);
        draw.textAlign = "left";
        draw.font = "11px ui-monospace, monospace";
        draw.fillStyle = colours.quiet;
        draw.fillText(name, left - label, y + high / 2);
      }
      for (let column = 0; column < gpus.length + missing; column += 1) {
        const [x, y] = place(row, column), gpu = gpus[column], value = gpu ? gpu[2] : null;
        draw.fillStyle = value === null ? none : colours.steps[step(value)];
        draw.fillRect(x, y, cell, high);
        if (!gpu) continue;
        if (states[gpu[1]] === "held") ring(x, y, colours.held, small ? 1.5 : 2);
        if (!small && value !== null) {
          draw.textAlign = "center";
          draw.font = "11px system-ui, sans-serif";
          const deep = step(value);
          draw.fillStyle = deep >= 5 ? colours.hot : deep === 4 ? colours.mid : colours.ink;
          draw.fillText(value, x + cell / 2, y + high / 2 + 0.5);
        }
        if (gpu[7]) { // an XID: a corner, whatever the colour below it
          draw.fillStyle = colours.bad;
          draw.beginPath();
          const corner = small ? 4 : 7;
          draw.moveTo(x + cell - corner, y); draw.lineTo(x + cell, y); draw.lineTo(x + cell, y + corner);
          draw.fill();
        }
      }
    });
    still.width = canvas.width;
    still.height = canvas.height;
    still.getContext("2d").drawImage(canvas, 0, 0);
    mark();
  };
  const mark = () => {
    if (!at) return;
    draw.setTransform(1, 0, 0, 1, 0, 0);
    draw.clearRect(0, 0, canvas.width, canvas.height);
    draw.drawImage(still, 0, 0);
    draw.setTransform(scale, 0, 0, scale, 0, 0);
    ring(...place(...at), colours.ink, 2, 1);
  };
  const ring = (x, y, colour, width, out = 0) => {
    draw.strokeStyle = colour;
    draw.lineWidth = width;
    draw.strokeRect(x + width / 2 - out, y + width / 2 - out, cell - width + 2 * out, high - width + 2 * out);
  };

  const line = (list, key, text) => {
    if (text === "") return;
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = key;
    dd.textContent = text;
    list.append(dt, dd);
  };
  const words = { effective: "Effective", low: "Low", held: "Held idle", free: "Free", out: "Out of service", none: "No data" };
  const said = (value, of) => (value === null || value === undefined ? "no data" : `${value} ${of}`);
  const show = (next) => {
    at = next;
    mark();
    const [row, column] = at, [key, name, gpus] = nodes[row], gpu = gpus[column];
    const head = document.createElement("p"), link = document.createElement("a"), list = document.createElement("dl");
    link.href = `/nodes/${key}/#gpus`;
    link.textContent = name;
    link.className = "mono";
    head.append(link, gpu ? `, GPU ${gpu[0]}` : ", a GPU without telemetry");
    list.className = "kv";
    line(list, "State", gpu ? words[states[gpu[1]]] : "Unknown");
    if (gpu) {
      line(list, word, said(gpu[2], unit));
      if (word !== "Busy") line(list, "Busy", said(gpu[3], "%"));
      if (word !== "Power") line(list, "Power", said(gpu[4], "W"));
      if (word !== "Temperature") line(list, "Temperature", said(gpu[5], "°C"));
      line(list, "Pod", gpu[6] < 0 ? "none" : pods[gpu[6]]);
      line(list, "Last XID", gpu[7] ? String(gpu[7]) : "");
      line(list, "Sample", box.dataset.age);
    }
    pick.replaceChildren(head, list);
  };
  const found = (event) => {
    const bounds = canvas.getBoundingClientRect(), x = event.clientX - bounds.left, y = event.clientY - bounds.top;
    const stack = Math.floor(x / (block + space)), inside = x - stack * (block + space) - label;
    const row = stack * rows + Math.floor(y / (high + gap)), column = Math.floor(inside / (cell + gap));
    if (inside < 0 || y < 0 || Math.floor(y / (high + gap)) >= rows || !nodes[row]) return null;
    return column < nodes[row][2].length + nodes[row][3] ? [row, column] : null;
  };

  canvas.addEventListener("pointermove", (event) => {
    const next = found(event);
    if (next && String(next) !== String(at)) show(next);
  });
  canvas.addEventListener("click", (event) => {
    const next = found(event);
    if (next) show(next);
  });
  canvas.addEventListener("dblclick", () => at && location.assign(`/nodes/${nodes[at[0]][0]}/#gpus`));
  canvas.addEventListener("focus", () => at || show([0, 0]));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter" && at) location.assign(`/nodes/${nodes[at[0]][0]}/#gpus`);
    if (!move || !at) return;
    event.preventDefault();
    const row = Math.min(nodes.length - 1, Math.max(0, at[0] + move[0]));
    const cells = nodes[row][2].length + nodes[row][3];
    show([row, Math.min(cells - 1, Math.max(0, at[1] + move[1]))]);
  });
  new ResizeObserver(paint).observe(box.querySelector(".heatmap-c"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
})();
