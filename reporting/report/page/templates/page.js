"use strict";
(() => {
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const HOUR = 3600000;
  const DAY = 24 * HOUR;

  // --- how old the page is ---
  const STALE = 36 * HOUR;
  const made = Date.parse(document.documentElement.dataset.made);
  function warnIfStale() {
    const age = Date.now() - made;
    const warning = one("#stale");
    warning.hidden = !(age > STALE);
    if (warning.hidden) return;
    const days = Math.floor(age / DAY);
    const text = `This page is ${days < 2 ? Math.floor(age / HOUR) + " hours" : days + " days"} old. It says nothing of what happened since.`;
    if (warning.textContent !== text) warning.textContent = text;
  }
  warnIfStale();
  setInterval(warnIfStale, 60000);

  // --- on a wall: the page is loaded again while its server answers ---
  setInterval(() => {
    if (location.hash !== "#wall" || !location.protocol.startsWith("http")) return;
    fetch(location.pathname + location.search, { method: "HEAD", cache: "no-store" })
      .then((answer) => { if (answer.ok) location.reload(); }, () => {});
  }, 5 * 60000);

  // What does not fit on the wall becomes smaller, down to a bit more than half.
  function fitWall() {
    const root = document.documentElement;
    root.style.fontSize = "";
    if (location.hash !== "#wall") return;
    const whole = parseFloat(getComputedStyle(root).fontSize);
    for (let part = 100; part >= 55 && root.scrollHeight > innerHeight; part -= 2) root.style.fontSize = `${(whole * part) / 100}px`;
  }
  addEventListener("resize", fitWall);
  addEventListener("hashchange", fitWall);
  addEventListener("load", fitWall);  // only now the address's #wall has chosen what is shown

  // --- colours ---
  const dark = one("#dark");
  const theme = one("#theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => dark.media === "screen" || (dark.media.includes("prefers") && system.matches);
  function nameTheme() {
    theme.textContent = isDark() ? "Light colours" : "Dark colours";
  }
  theme.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    dark.media = chosen === "dark" ? "screen" : "not all";
    try { localStorage.setItem("hpc-ml-bench-theme", chosen); } catch { /* it holds for this visit */ }
    nameTheme();
  });
  system.addEventListener("change", nameTheme);
  nameTheme();

  // --- of very many tests the page holds most as text, in <noscript>, until it is looked at ---
  const FIRST_ROWS = 100;
  const unfinished = new Set();
  // Makes elements of what an element holds. Of a long table come the first rows, then as many again, and so on, so
  // that the page answers in between.
  function fill(root) {
    for (const held of all("noscript", root)) {
      const [top, rows = "", end = ""] = held.textContent.split(/(?<=<tbody>)|(?=<\/tbody>)/);
      held.outerHTML = top + end;
      const body = one("tbody", root);
      const waiting = rows.split(/(?=<tr\b)/);
      const more = () => {
        if (!unfinished.has(more)) return;  // a print has not waited for it
        body.insertAdjacentHTML("beforeend", waiting.splice(0, body.rows.length || FIRST_ROWS).join(""));
        if (waiting.length) { setTimeout(more); return; }
        unfinished.delete(more);
        for (const table of all("table.sortable", root)) makeSortable(table);
        filter();
        fitWall();
      };
      if (rows) { unfinished.add(more); more(); }
    }
  }
  const near = new IntersectionObserver((parts) => {
    for (const part of parts) if (part.isIntersecting) { near.unobserve(part.target); fill(part.target); }
  }, { rootMargin: "100%" });
  for (const held of all("section > noscript, section > .scroll > noscript")) near.observe(held.closest("section"));

  // --- a link to a test opens it; a print shows all of them ---
  function openTarget() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target || !target.matches("details")) return;
    target.open = true;
    target.scrollIntoView();
    one("summary", target).focus({ preventScroll: true });
  }
  addEventListener("hashchange", openTarget);
  let opened = [];
  addEventListener("beforeprint", () => {
    all("section:has(> noscript, > .scroll > noscript), .test").forEach(fill);
    while (unfinished.size) for (const more of unfinished) more();
    opened = all("details:not([open])");
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
  });

  // --- the filter ---
  const tests = all(".test").map((test) => ({ test, words: `${test.dataset.words} ${test.dataset.condition}`.toLowerCase() }));
  function filter() {
    const cells = new Map(all(".cell").map((cell) => [cell.hash.slice(1), cell]));
    const rows = all(".grid tbody tr");
    const heads = all(".grid thead th").slice(1);
    const numbers = new Map();
    for (const row of all("tr[data-test]")) numbers.set(row.dataset.test, [...(numbers.get(row.dataset.test) || []), row]);
    const words = one("#filter-words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const conditions = new Set(all("#filter input:checked").map((box) => box.value));
    let count = 0;
    for (const { test, words: own } of tests) {
      const shown = words.every((word) => own.includes(word)) && (!conditions.size || conditions.has(test.dataset.condition));
      test.hidden = !shown;
      cells.get(test.id)?.classList.toggle("filtered-out", !shown);
      for (const row of numbers.get(test.id) || []) row.hidden = !shown;
      count += shown;
    }
    for (const platform of all("[data-platform]")) platform.hidden = !one(".test:not([hidden])", platform);
    for (const row of rows) row.hidden = !one(".cell:not(.filtered-out)", row);
    heads.forEach((head, at) => {
      const column = rows.map((row) => row.cells[at + 1]);
      const empty = !column.some((cell) => one(".cell:not(.filtered-out)", cell));
      for (const cell of [head, ...column]) cell.hidden = empty;
    });
    one("#nothing-found").hidden = count > 0;
    one("#filter-result").textContent = count === tests.length ? `${count} tests` : `${count} of ${tests.length} tests`;
  }
  one("#filter").addEventListener("input", filter);
  one("#filter").addEventListener("submit", (event) => event.preventDefault());

  // --- tables that can be sorted ---
  function makeSortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = element("button", { type: "button", className: "sort", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const order = head.ariaSort === "ascending" ? "descending" : "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
        const compare = (a, b) => {
          const [x, y] = [key(a), key(b)];
          if (x === "" || y === "") return (x === "") - (y === "");  // what is missing stands last
          return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
        };
        const body = table.tBodies[0];
        body.append(...[...body.rows].sort(compare));
      });
    });
  }
  for (const table of all("table.sortable")) makeSortable(table);

  // --- reading a trend ---
  let runs = null;
  const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const weekdays = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  function nightText(day) {
    const date = new Date(Date.parse(runs.first + "T00:00Z") + day * DAY);
    return `${weekdays[date.getUTCDay()]} ${date.getUTCDate()} ${months[date.getUTCMonth()]} ${date.getUTCFullYear()}`;
  }
  function number(value) {
    const digits = Math.abs(value) >= 1000 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toPrecision(3);
    return digits.replace("-", "−");
  }
  function percent(change) {
    const tenths = Math.round(1000 * change);
    return `${tenths < 0 ? "−" : tenths > 0 ? "+" : ""}${(Math.abs(tenths) / 10).toFixed(1)} %`;
  }
  // The runs of a series as objects; `day` counts from the report's first night.
  function read(name) {
    runs ??= JSON.parse(one("#runs").textContent);
    const series = runs.series[name];
    const apart = new Set(series.apart);
    const text = (places, at) => (at in places ? runs.texts[places[at]] : "");
    return series.values.map((value, at) => {
      const day = series.days[at];
      const level = series.levels.findLast(([from, to]) => from <= day && (to === null || day <= to));
      const change = value === null || !level || !level[2] || apart.has(at) ? null : series.sign * (value / level[2] - 1);
      return {
        day, value, change, unit: series.unit,
        condition: runs.conditions[series.conditions[at]],
        run: runs.runs[series.runs[at]], nodes: runs.texts[series.nodes[at]],
        said: text(series.said, at), remark: text(series.remarks, at),
        isApart: apart.has(at),
      };
    });
  }
  function told(run) {
    return [
      run.value === null ? "no numbers" : `${number(run.value)} ${run.unit}`.trim(),
      run.change === null ? "" : `${percent(run.change)} from its pin`,
      run.isApart ? "not comparable with the last run" : "",
      run.said ? `${run.condition}: ${run.said}` : run.condition,
      `run ${run.run}`,
      run.nodes ? `on ${run.nodes}` : "",
      run.remark,
    ].filter(Boolean).join(", ");
  }
  function prepare(figure) {
    if (figure.dataset.ready) return;
    figure.dataset.ready = "yes";
    const own = read(figure.dataset.series);
    if (!own.length) return;
    const plot = one(".plot", figure);
    const picture = one("svg", plot);
    const readout = one(".readout", figure);
    const nights = one("svg", picture).viewBox.baseVal.width;
    const offset = Math.max(runs.last, own.at(-1).day) - nights + 1;  // the first night of the picture
    const range = element("input", { type: "range", className: "scrub", min: 0, max: own.length - 1, step: 1, value: own.length - 1 });
    range.setAttribute("aria-label", `Runs of ${figure.dataset.label}`);
    const cursor = element("div", { className: "cursor", hidden: true });
    plot.append(cursor, range);
    const frame = () => {
      const style = getComputedStyle(picture);
      const left = parseFloat(style.paddingLeft);
      return { left, width: picture.clientWidth - left - parseFloat(style.paddingRight) };
    };
    function show(at) {
      const run = own[at];
      range.value = at;
      const { left, width } = frame();
      cursor.style.left = `${left + (width * (run.day - offset + 0.5)) / nights}px`;
      cursor.hidden = false;
      const text = told(run);
      range.setAttribute("aria-valuetext", `${nightText(run.day)}, ${text}`);
      readout.replaceChildren(element("b", { textContent: nightText(run.day) }), ` ${text}`);
    }
    range.setAttribute("aria-valuetext", `${nightText(own.at(-1).day)}, ${told(own.at(-1))}`);
    range.addEventListener("input", () => show(Number(range.value)));
    range.addEventListener("focus", () => show(Number(range.value)));
    const point = (event) => {
      const { left, width } = frame();
      const day = offset + ((event.clientX - picture.getBoundingClientRect().left - left) / width) * nights - 0.5;
      let nearest = 0;
      own.forEach((run, at) => { if (Math.abs(run.day - day) < Math.abs(own[nearest].day - day)) nearest = at; });
      show(nearest);
    };
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerdown", point);
    const button = element("button", { type: "button", textContent: `Show the ${own.length} runs as a table` });
    const box = element("div", { className: "more-runs" }, button);
    button.addEventListener("click", () => box.replaceChildren(table(own, figure.dataset.label)));
    figure.append(box);
  }
  function table(own, label) {
    const heads = ["Night", "Value", "From its pin", "Condition", "The gate", "Run", "Nodes", "Changes and doubts"];
    const head = element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col", textContent: text }))));
    const body = element("tbody");
    for (const run of own.toReversed()) {
      const value = run.value === null ? "–" : `${number(run.value)} ${run.unit}`;
      const cells = [value, run.change === null ? "–" : percent(run.change), run.condition, run.said, run.run, run.nodes, run.remark];
      const texts = cells.map((text) => element("td", { textContent: text }));
      body.append(element("tr", {}, element("th", { scope: "row", textContent: nightText(run.day) }), ...texts));
    }
    const caption = element("caption", { textContent: `All runs of ${label}, the latest first` });
    const scroll = element("div", { className: "scroll", tabIndex: 0 }, element("table", { className: "plain" }, caption, head, body));
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", caption.textContent);
    return scroll;
  }
  for (const test of all(".test")) {
    test.addEventListener("toggle", () => { if (test.open) { fill(test); all(".history", test).forEach(prepare); } });
  }
  openTarget();
})();
