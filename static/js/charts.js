// Charts: a crosshair with the figures of the time under it, by pointer, touch and keyboard; dragging zooms. Figures are
// those of the chart's own attributes (common/templatetags/chart_data.py). Times are the reader's, with UTC beside them. Everything
// here is a comfort: the table of each chart has its figures, and the picker's form zooms.
(() => {
  "use strict";
  const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const SVG = "http://www.w3.org/2000/svg", DRAG = 6, MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const DAYS = "Sun Mon Tue Wed Thu Fri Sat".split(" ");

  const element = (name, css, text = "") => {
    const made = document.createElement(name);
    made.className = css;
    made.textContent = text;
    return made;
  };

  // ── Times: of the reader's zone, or of UTC; as the server writes them ─────────────────────────────────────────────
  const parts = (seconds, utc) => {
    const at = new Date(1000 * seconds - (utc ? 0 : 60000 * new Date(1000 * seconds).getTimezoneOffset()));
    const two = (value) => String(value).padStart(2, "0");
    return {
      year: at.getUTCFullYear(), weekday: DAYS[at.getUTCDay()], day: `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}`,
      time: `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`, iso: at.toISOString().slice(0, 16),
    };
  };
  const isUtc = (seconds) => !new Date(1000 * seconds).getTimezoneOffset();
  const span = (start, end, utc, year = "") => {
    const from = parts(start, utc), to = parts(end, utc);
    const day = (part) => (year ? `${part.day} ${part.year}` : part.day);
    if (!year && from.day === to.day) return `${from.day} ${from.time}–${to.time}`;
    return `${day(from)} ${from.time} to ${day(from) === day(to) ? "" : `${day(to)} `}${to.time}`;
  };
  const localize = () => {
    for (const text of document.querySelectorAll("text[data-at]")) {
      const at = parts(Number(text.dataset.at));
      text.textContent = { time: at.time, weekday: `${at.weekday} ${at.time}`, day: at.day }[text.dataset.as];
    }
    for (const shown of document.querySelectorAll("[data-span]")) {
      const [start, end] = [Number(shown.dataset.start), Number(shown.dataset.end)];
      if (isUtc(start) && isUtc(end)) continue;
      shown.title = `${span(start, end, true, "year")} UTC`;
      shown.textContent = `${span(start, end, false, "year")} ${zone}`;
    }
    for (const form of document.querySelectorAll("[data-range-form]:not([data-ready])")) {
      const box = form.querySelector("[name=zone]"), fields = [...form.querySelectorAll("[type=datetime-local]")];
      if (!fields.every((field) => field.dataset.instant)) continue; // refused: as it was typed, in the zone that it names
      for (const field of fields) field.value = parts(Number(field.dataset.instant)).iso;
      box.closest("label").replaceWith(element("span", "dim s", zone));
      form.dataset.ready = "";
    }
  };
  // The address carries UTC, so that a shared link shows the same to everybody.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-range-form][data-ready]")) return;
    event.preventDefault();
    const query = new URLSearchParams(new FormData(form));
    for (const name of ["from", "to"]) {
      const at = new Date(query.get(name));
      if (Number.isNaN(at.getTime())) query.delete(name);
      else query.set(name, `${at.toISOString().slice(0, 16)}Z`);
    }
    go(query, event.submitter?.id);
  });
  // Without the hash, which would take the focus from where static/js/app.js begins: at this control once more.
  const go = (query, id) => {
    if (id) sessionStorage.setItem("setpoint-focus", `${location.pathname} ${id}`);
    location.assign(`${location.pathname}?${String(query).replaceAll("%3A", ":")}`);
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-range] a[id][href]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(new URL(link.href).searchParams, link.id);
  });

  // ── A chart ───────────────────────────────────────────────────────────────────────────────────────────────────────
  let resume = {}; // the chart that had the focus before an update, and the time of its crosshair
  const shown = new Map(); // key of a chart: that time

  const read = (root) => {
    const { start, step, length, series, days } = root.dataset;
    const listed = series.split(";").map((text) => {
      const [word, unit, css, values, before] = text.split("|");
      const known = (some) => (some ? some.split(",").map((value) => (value === "" ? null : Number(value))) : []);
      return { word, unit, css, values: known(values), before: known(before) };
    });
    const count = Math.max(0, ...listed.map((one) => one.values.length));
    const whole = days === undefined ? Number(length) : 86400 * (count - 1);
    return { start: Number(start), step: Number(step), length: whole, isDays: days !== undefined, listed, count };
  };
  const value = (amount, unit) => (amount === null || amount === undefined ? "no data" : `${number.format(amount)}${unit ? ` ${unit}` : ""}`);
  const lines = (chart, at) => chart.listed.map(({ word, unit, css, values, before }) =>
    ({ word, css, now: value(values[at], unit), then: before.length ? value(before[at], unit) : "" }));
  const times = (chart, at) => {
    const start = chart.start + at * chart.step, end = Math.min(start + chart.step, chart.start + chart.length);
    if (chart.isDays) return [`${parts(start, true).day}`, "UTC"];
    if (isUtc(start) && isUtc(end)) return [span(start, end, true), "UTC"];
    return [`${span(start, end)} ${zone}`, `${span(start, end, true)} UTC`];
  };
  const marks = (root, chart, at) => {
    const start = chart.start + at * chart.step;
    return [...root.querySelectorAll("[data-mark]")].filter(({ dataset }) => dataset.at >= start && dataset.at < start + chart.step)
      .map(({ dataset }) => `Rollout of ${dataset.mark} began ${parts(Number(dataset.at)).time}`);
  };

  const key = ({ word, css, now, then }) => {
    const row = element("p", "key"), mark = document.createElementNS(SVG, "svg"), rect = document.createElementNS(SVG, "rect");
    for (const [name, amount] of [["class", css], ["width", "100%"], ["height", "100%"]]) rect.setAttribute(name, amount);
    mark.append(rect);
    if (css) row.append(mark);
    row.append(element("span", "", word), element("b", "num", now));
    if (then) row.append(element("span", "dim", `before ${then}`));
    return row;
  };

  const build = (root) => {
    const scrub = element("div", "scrub"), cross = element("div", "cross"), brush = element("div", "brush");
    const tip = element("div", "tip"), say = element("div", "visually-hidden");
    const canZoom = Boolean(root.dataset.zoom);
    const what = root.dataset.what ?? root.querySelector("[aria-label]")?.getAttribute("aria-label").split(/[;:]/)[0] ?? "Chart";
    const keys = "arrow keys move from step to step, Page Up and Page Down by ten, Home and End to the edges";
    scrub.tabIndex = 0;
    scrub.id = `chart-${root.dataset.chart}`;
    scrub.setAttribute("role", "application");
    scrub.setAttribute("aria-label", `${what}: ${keys}${canZoom ? "; with Shift they select, and Enter zooms" : ""}.`);
    say.setAttribute("aria-live", "polite");
    tip.setAttribute("aria-hidden", "true");
    cross.hidden = brush.hidden = tip.hidden = true;
    scrub.append(cross, brush, tip, say);
    root.append(scrub);
    let at = -1, anchor = -1, down = null;

    const area = () => root.querySelector(".cht, .spark").getBoundingClientRect();
    const edges = (chart, index) => chart.isDays
      ? [index / (chart.count - 1), index / (chart.count - 1)]
      : [(index * chart.step) / chart.length, Math.min(1, ((index + 1) * chart.step) / chart.length)];
    const indexAt = (chart, x) => {
      const box = area(), share = Math.min(1, Math.max(0, (x - box.left) / box.width));
      const index = chart.isDays ? Math.round(share * (chart.count - 1)) : Math.floor((share * chart.length) / chart.step);
      return Math.min(chart.count - 1, index);
    };
    const show = (index, isSaid = false) => {
      const chart = read(root), box = area(), home = root.getBoundingClientRect();
      if (!chart.count || !box.width) return;
      at = Math.min(chart.count - 1, Math.max(0, index));
      shown.set(root.dataset.chart, chart.start + at * chart.step);
      const [left, right] = edges(chart, at), x = box.left - home.left + ((left + right) / 2) * box.width;
      const [local, utc] = times(chart, at), rows = lines(chart, at), events = marks(root, chart, at);
      cross.hidden = tip.hidden = false;
      cross.style.left = `${x}px`;
      tip.replaceChildren(element("p", "when", local), element("p", "dim", utc), ...rows.map(key), ...events.map((text) => element("p", "", text)));
      // Beside the crosshair, on the side with more room, and never out of the window; above a chart that is low.
      const wide = tip.offsetWidth, room = document.documentElement.clientWidth;
      const isLow = home.height < 160, beside = isLow ? x - wide / 2 : x + 12 + wide > home.width ? x - 12 - wide : x + 12;
      tip.style.left = `${Math.min(room - home.left - wide - 4, Math.max(4 - home.left, beside))}px`;
      tip.style.top = isLow ? `${-tip.offsetHeight - 4}px` : "0";
      select(chart, box, home);
      if (!isSaid) return;
      const figures = rows.map(({ word, now, then }) => `${word} ${now}${then ? `, before ${then}` : ""}`);
      say.textContent = `${local}${utc === "UTC" ? " UTC" : `, ${utc}`}: ${[...figures, ...events].join("; ")}.`;
    };
    const select = (chart, box, home) => {
      brush.hidden = anchor < 0;
      if (anchor < 0) return;
      const left = edges(chart, Math.min(anchor, at))[0], right = edges(chart, Math.max(anchor, at))[1];
      brush.style.left = `${box.left - home.left + left * box.width}px`;
      brush.style.width = `${(right - left) * box.width}px`;
    };
    const hide = () => {
      anchor = at = -1;
      cross.hidden = brush.hidden = tip.hidden = true;
      shown.delete(root.dataset.chart);
    };
    const zoomIn = () => {
      const chart = read(root), [first, last] = [Math.min(anchor, at), Math.max(anchor, at)];
      const start = chart.start + first * chart.step;
      const end = Math.min(chart.start + chart.length, chart.start + (last + 1) * chart.step, Number(root.dataset.latest));
      const query = new URLSearchParams(location.search);
      for (const name of ["window", "zone", "page"]) query.delete(name);
      query.set("from", `${parts(start, true).iso}Z`);
      query.set("to", `${parts(end, true).iso}Z`);
      go(query, scrub.id);
    };

    scrub.addEventListener("pointermove", (event) => {
      const chart = read(root);
      if (down !== null && event.pointerType === "mouse" && Math.abs(event.clientX - down) >= DRAG && anchor < 0) anchor = indexAt(chart, down);
      show(indexAt(chart, event.clientX));
    });
    scrub.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      anchor = -1;
      down = canZoom ? event.clientX : null;
      scrub.setPointerCapture(event.pointerId);
      show(indexAt(read(root), event.clientX));
    });
    scrub.addEventListener("pointerup", () => {
      if (down !== null && anchor >= 0) zoomIn();
      down = null;
    });
    scrub.addEventListener("pointercancel", () => { down = null; hide(); });
    scrub.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse" && document.activeElement !== scrub && down === null) hide();
    });
    scrub.addEventListener("focus", () => {
      const chart = read(root), ends = chart.listed.map(({ values }) => values.findLastIndex((one) => one !== null));
      if (at < 0) show(Math.max(0, ...ends), true);
    });
    scrub.addEventListener("blur", hide);
    scrub.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { count } = read(root);
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: count - 1 }[event.key];
      if (to !== undefined) {
        if (canZoom && event.shiftKey) anchor = anchor < 0 ? at : anchor;
        else anchor = -1;
        show(to, true);
      } else if (event.key === "Enter" && anchor >= 0) zoomIn();
      else if (event.key === "Escape" && anchor >= 0) { anchor = -1; show(at, true); }
      else return;
      event.preventDefault();
    });
    scrub.addEventListener("refresh", () => (at < 0 ? null : show(at)));
    const isBack = resume.key === root.dataset.chart, time = isBack ? resume.time : shown.get(root.dataset.chart);
    if (time === undefined) return;
    const chart = read(root);
    show(Math.round((time - chart.start) / chart.step));
    if (!isBack) return;
    scrub.focus({ preventScroll: true });
    resume = {};
  };

  // What an update brought has no crosshair yet; what it kept may have other figures.
  const update = () => {
    localize();
    for (const root of document.querySelectorAll("[data-chart]")) {
      const scrub = root.querySelector(":scope > .scrub");
      if (scrub) scrub.dispatchEvent(new Event("refresh"));
      else build(root);
    }
  };
  update();
  document.addEventListener("htmx:before:swap", () => {
    const key = document.activeElement?.closest("[data-chart]")?.dataset.chart;
    resume = key ? { key, time: shown.get(key) } : {};
  });
  document.addEventListener("htmx:after:swap", update);
  window.addEventListener("resize", update);
})();
