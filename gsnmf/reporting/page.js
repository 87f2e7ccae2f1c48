"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const by = Object.keys(data.orders)[0];
  const state = { sort: by, hide: false };
  const narrow = matchMedia("(max-width: 700px)");
  const minus = (text) => text.replace(/^-/, "−");
  const format = (x) => minus(Math.abs(x) >= 1e9 || (x && Math.abs(x) < 1e-4) ? x.toExponential(2)
    : Math.abs(x) >= 1000 ? x.toLocaleString("en", { maximumFractionDigits: 0 }) : String(+x.toPrecision(4)));

  const shown = () => data.orders[state.sort].filter((k) => !(state.hide && !data.live[k]));

  // Elements with a data-k into the order of the components shown; the others are hidden.
  function arrange(parent) {
    if (!parent) return;
    const own = new Map(all(":scope > [data-k]", parent).map((e) => [+e.dataset.k, e]));
    const order = shown();
    for (const [k, e] of own) e.hidden = !order.includes(k);
    for (const k of order) parent.append(own.get(k));
  }

  // A Hinton diagram: components are columns, or rows where the screen is narrow.
  function layOut(svg) {
    const { left, top, w: fullW, h: fullH, c: C, thumbs } = Object.fromEntries(Object.entries(svg.dataset).map(([k, v]) => [k, +v]));
    const order = shown(), place = new Map(order.map((k, n) => [k, n]));
    const names = all(".row-name", svg), longest = Math.max(...names.map((e) => e.textContent.length));
    const upright = narrow.matches, slanted = longest > 2;
    const room = (svg.parentElement.clientWidth - 40) / (C + thumbs);
    const f = upright ? Math.max(0.2, Math.min(1, room / fullW)) : 1, w = f * fullW, h = f * fullH; // letters stay large
    const x0 = upright ? (thumbs ? w + 34 : 30) : left;
    const y0 = upright ? (slanted ? 16 + 6.9 * longest : 20) : top;
    const [columns, rows] = upright ? [C, order.length] : [order.length, C];
    const at = (k, c) => {
      const [column, row] = upright ? [c, place.get(k)] : [place.get(k), c];
      return `translate(${x0 + (column + 0.5) * w} ${y0 + (row + 0.5) * h}) scale(${f})`;
    };
    for (const e of all(".cell", svg)) {
      const k = +e.dataset.k, visible = place.has(k);
      e.toggleAttribute("hidden", !visible);
      if (visible) e.setAttribute("transform", at(k, +e.dataset.c));
    }
    for (const e of all(".head", svg)) {
      const k = +e.dataset.k, visible = place.has(k), text = e.querySelector("text");
      e.toggleAttribute("hidden", !visible);
      if (!visible) continue;
      const n = place.get(k) + 0.5;
      text.style.fontSize = `${10.5 / f}px`;
      if (upright) {
        e.setAttribute("transform", `translate(${thumbs ? 30 + w / 2 - 2 : 16} ${y0 + n * h}) scale(${f})`);
        text.setAttribute("x", thumbs ? -fullW / 2 - 14 / f : 0);
        text.setAttribute("y", 4 / f);
      } else {
        e.setAttribute("transform", `translate(${x0 + n * w} ${thumbs ? top - h / 2 - 4 : 10})`);
        text.setAttribute("x", 0);
        text.setAttribute("y", thumbs ? -h / 2 - 6 : 4);
      }
    }
    for (const e of names) {
      const n = +e.dataset.c + 0.5;
      e.setAttribute("x", 0);
      e.setAttribute("y", 0);
      e.style.textAnchor = upright ? (slanted ? "start" : "middle") : "end";
      const turn = upright && slanted ? " rotate(-70)" : "";
      e.setAttribute("transform", upright ? `translate(${x0 + n * w + (slanted ? 4 : 0)} ${y0 - 6})${turn}` : `translate(${x0 - 8} ${y0 + n * h + 4})`);
    }
    const frame = svg.querySelector(".frame"), width = x0 + columns * w + 4, height = y0 + rows * h + 4;
    for (const [key, value] of Object.entries({ x: x0, y: y0, width: columns * w, height: rows * h })) frame.setAttribute(key, value);
    const lines = Array.from({ length: rows - 1 }, (_, r) => `M${x0} ${y0 + (r + 1) * h}h${columns * w}`);
    svg.querySelector(".rules").setAttribute("d", lines.join(""));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    svg.classList.toggle("upright", upright);
  }

  // Coefficients as shades, with lines between classes and their names below.
  const heat = byId("heat"), N = data.heat.samples.length;
  const shades = Uint8Array.from(atob(data.heat.shades), (c) => c.charCodeAt(0));
  const LABELS = 18;
  function drawHeat() {
    const order = shown(), ratio = devicePixelRatio || 1, width = heat.clientWidth;
    const row = Math.max(4, Math.min(14, 420 / Math.max(order.length, 1)));
    const height = order.length * row + (data.groups.length ? LABELS : 0);
    heat.width = width * ratio;
    heat.height = height * ratio;
    heat.style.height = `${height}px`;
    if (!order.length) return;
    const sheet = (w, h) => Object.assign(document.createElement("canvas"), { width: w, height: h });
    const small = sheet(N, order.length), image = new ImageData(N, order.length);
    order.forEach((k, r) => {
      for (let n = 0; n < N; n++) {
        const v = shades[k * N + n] / 255, at = 4 * (r * N + n);
        image.data.set([255 - 227 * v, 255 - 218 * v, 255 - 207 * v, 255], at);
      }
    });
    small.getContext("2d").putImageData(image, 0, 0);
    const pen = heat.getContext("2d");
    pen.scale(ratio, ratio);
    pen.imageSmoothingEnabled = false;
    let source = small;
    if (N > width) { // several samples to a pixel: their average, but rows stay apart
      source = sheet(width, order.length);
      source.getContext("2d").drawImage(small, 0, 0, width, order.length);
    }
    pen.drawImage(source, 0, 0, width, order.length * row);
    pen.strokeStyle = "#c9d2dc";
    pen.strokeRect(0.5, 0.5, width - 1, order.length * row - 1);
    pen.font = "11.5px system-ui, sans-serif";
    pen.textAlign = "center";
    let start = 0, free = -Infinity;
    for (let n = 1; n <= N && data.groups.length; n++) {
      if (n < N && data.heat.of[n] === data.heat.of[n - 1]) continue;
      const middle = (width * (start + n)) / (2 * N), name = data.groups[data.heat.of[start]], half = pen.measureText(name).width / 2;
      if (middle - half > free && middle - half >= 0 && middle + half <= width) {
        pen.fillStyle = "#5b6776";
        pen.fillText(name, middle, height - 4);
        free = middle + half + 6;
      }
      if (n < N) {
        pen.fillStyle = "rgba(194, 65, 12, .55)";
        pen.fillRect((width * n) / N - 0.5, 0, 1, order.length * row + 3);
      }
      start = n;
    }
  }
  function readHeat(event) {
    const box = heat.getBoundingClientRect(), order = shown();
    const row = (box.height - (data.groups.length ? LABELS : 0)) / order.length;
    const n = Math.floor((N * (event.clientX - box.left)) / box.width), r = Math.floor((event.clientY - box.top) / row);
    if (n < 0 || n >= N || r < 0 || r >= order.length) return hideTip();
    const k = order[r], v = shades[k * N + n], group = data.groups[data.heat.of[n]];
    const value = v === 255 ? `at least ${format(data.heat.top)}` : `about ${format((data.heat.top * v) / 255)}`;
    showTip(`component ${k}, sample ${data.heat.samples[n]}${group === undefined ? "" : ` (${group})`}: E[v] ${value}`, event.clientX, event.clientY);
  }

  function readTrace(event) {
    const svg = byId("trace"), { x, y, sweep, value } = data.trace, box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
    let best = 0;
    x.forEach((p, n) => { if (Math.abs(p - at) < Math.abs(x[best] - at)) best = n; });
    const spot = svg.querySelector(".spot");
    spot.setAttribute("cx", x[best]);
    spot.setAttribute("cy", Math.min(y[best], svg.viewBox.baseVal.height - 40));
    showTip(`${svg.dataset.unit} ${sweep[best]}: ${minus(value[best].toLocaleString("en", { maximumFractionDigits: 2 }))}`, event.clientX, event.clientY);
  }

  // λ on a logarithmic axis that has all intervals of the chosen class, except those of dead components.
  let lamClass = -1;
  function drawLam() {
    if (!data.lam) return;
    const { values: [means, lows, highs], own } = data.lam, column = (k) => (lamClass < 0 ? own[k] : lamClass);
    const live = data.live.some(Boolean) ? data.live : data.live.map(() => true);
    const kept = live.flatMap((alive, k) => (alive ? [k] : []));
    const floor = (k) => Math.max(lows[k][column(k)], means[k][column(k)] / 1000);
    let first = Math.log10(Math.min(...kept.map(floor))), last = Math.log10(Math.max(...kept.map((k) => highs[k][column(k)])));
    const margin = 0.04 * (last - first) || 0.1;
    first -= margin;
    last += margin;
    const at = (x) => Math.max(-5, Math.min(105, (100 * (Math.log10(x) - first)) / (last - first)));
    for (const e of all("#lam-rows > [data-k]")) {
      const k = +e.dataset.k, c = column(k), low = at(lows[k][c]), high = at(highs[k][c]);
      e.querySelector(".range").style.cssText = `left:${low}%;width:${high - low}%`;
      e.querySelector(".spot").style.left = `${at(means[k][c])}%`;
      e.querySelector(".value").textContent = format(means[k][c]);
      all(".other", e).forEach((dot, g) => { dot.style.left = `${at(means[k][g])}%`; });
      const place = data.groups.length && means[k].length > 1 ? ` in ${data.groups[c]}` : "";
      e.dataset.tip = `component ${k}${place}: E[λ] ${format(means[k][c])}, ${format(lows[k][c])} to ${format(highs[k][c])}`;
    }
    const axis = byId("lam-axis"), steps = last - first > 2.5 ? [1] : [1, 2, 5];
    let marks = [];
    for (let d = Math.floor(first); d <= last; d++) marks.push(...steps.map((m) => m * 10 ** d));
    marks = marks.filter((x) => at(x) > 1 && at(x) < 97);
    const every = Math.max(1, Math.ceil((marks.length * 62) / Math.max(axis.clientWidth, 1)));
    axis.replaceChildren(...marks.filter((_, n) => n % every === 0).map((x) => {
      const mark = document.createElement("i");
      mark.textContent = format(x);
      mark.style.left = `${at(x)}%`;
      return mark;
    }));
  }

  // Features whose names have the text, those that begin with it first; all is text, never markup.
  const SHOWN = 20;
  function find(query) {
    const list = byId("find-results"), { names, places, homes } = data.features, wanted = query.trim().toLowerCase();
    const ranked = [[], []];
    if (wanted) names.forEach((name, n) => {
      const at = name.toLowerCase().indexOf(wanted);
      if (at >= 0) ranked[at ? 1 : 0].push(n);
    });
    const hits = ranked.flat(), make = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
    const rows = hits.slice(0, SHOWN).map((n) => {
      const row = document.createElement("li");
      row.append(make("b", names[n]), ": ");
      places[n].forEach(([k, share], m) => {
        const link = make("a", `#${k}${homes[k] ? ` ${homes[k]}` : ""}`);
        link.href = `#named-${k}`;
        row.append(m ? ", " : "", `${share} % in `, link);
      });
      return row;
    });
    if (wanted && hits.length > SHOWN) rows.push(make("li", `and ${hits.length - SHOWN} more`));
    if (wanted && !hits.length) rows.push(make("li", "no such feature in the index"));
    list.replaceChildren(...rows);
  }
  if (data.features) {
    byId("find-form").hidden = false;
    byId("find").addEventListener("input", (event) => find(event.target.value));
  }

  const tip = byId("tip");
  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 12, innerWidth - box.width - 6))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
  }
  function hideTip() { tip.hidden = true; }
  function follow(event) {
    if (event.target === heat) return readHeat(event);
    if (event.target.closest("#trace")) return readTrace(event);
    const e = event.target.closest("[data-tip]");
    return e ? showTip(e.dataset.tip, event.clientX, event.clientY) : hideTip();
  }
  addEventListener("pointermove", follow);
  addEventListener("pointerdown", follow);
  addEventListener("scroll", hideTip, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  addEventListener("focusin", (event) => {
    const e = event.target.closest("[data-tip]");
    if (!e || !e.matches(":focus-visible")) return;
    const box = e.getBoundingClientRect();
    showTip(e.dataset.tip, box.left, box.bottom - 12);
  });
  addEventListener("focusout", hideTip);

  function render() {
    arrange(byId("gallery"));
    arrange(byId("named"));
    arrange(byId("lam-rows"));
    all(".hinton").forEach(layOut);
    drawLam();
    drawHeat();
    const n = shown().length, K = data.live.length;
    byId("status").textContent = n === K ? `${K} components` : `${n} of ${K} components`;
  }
  const on = (id, act) => { const e = byId(id); if (e) e.addEventListener("change", () => act(e)); };
  on("sort", (e) => { state.sort = e.value; render(); });
  on("hide-dead", (e) => { state.hide = e.checked; render(); });
  on("light", (e) => document.body.classList.toggle("light", e.checked));
  on("squares", (e) => document.body.classList.toggle("squares", e.checked));
  on("lam-class", (e) => { lamClass = +e.value; drawLam(); });
  all("form").forEach((e) => e.addEventListener("submit", (event) => event.preventDefault()));
  if (data.light && byId("light")) {
    byId("light").checked = true;
    document.body.classList.add("light");
  }
  addEventListener("resize", render);
  render();
})();
