// What a page does by itself: sort tables, show all of long ones, find signals, fold, draw plots when they come into view. On paper pictures stand in their place, and what is folded stays so.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripted");

  // ------------------------------------------------------------------ tables
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (!("sort" in cell.dataset)) return cell.textContent.trim();
    return cell.dataset.sort === "" ? null : Number(cell.dataset.sort);
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number"
    ? a - b : String(a).localeCompare(String(b), undefined, {numeric: true});
  const sortBy = (table, header) => {
    const column = header.cellIndex;
    const numeric = header.classList.contains("num") || header.dataset.numeric === "";
    const before = header.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numeric;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row, column), row]);
    rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : (down ? -1 : 1) * compare(a, b));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const header of table.tHead.rows[0].cells) {
      if (!header.textContent.trim()) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      button.append(...header.childNodes);
      button.addEventListener("click", () => sortBy(table, header));
      header.append(button);
    }
  }
  for (const table of document.querySelectorAll("table.long-table")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "more";
    const label = () => {
      const all = table.classList.contains("all");
      button.textContent = all ? "Show the first 10 rows" : `Show all ${table.tBodies[0].rows.length} rows`;
      button.setAttribute("aria-expanded", all);
    };
    button.addEventListener("click", () => { table.classList.toggle("all"); label(); });
    label();
    table.closest(".scroll").after(button);
  }

  // ------------------------------------------------------------------ find and fold
  const contents = document.querySelector("details.contents");
  if (matchMedia("(max-width: 999px)").matches) contents.open = false;
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target?.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const reader = new IntersectionObserver((entries) => {
    const seen = entries.filter((entry) => entry.isIntersecting).at(-1);
    if (!seen) return;
    for (const [id, link] of links) {
      if (id === seen.target.id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
  }, {rootMargin: "-10% 0px -80%"});
  for (const id of links.keys()) reader.observe(document.getElementById(id));

  const find = document.getElementById("find");
  find?.addEventListener("input", () => {
    const part = find.value.trim().toLowerCase();
    let found = 0;
    document.querySelector(".index table").classList.toggle("all", part !== "");
    for (const row of document.querySelectorAll(".index tbody tr")) row.hidden = !row.querySelector(".name").title.toLowerCase().includes(part);
    for (const plot of document.querySelectorAll("article.signal")) {
      plot.hidden = !plot.dataset.signal.toLowerCase().includes(part);
      found += plot.hidden ? 0 : 1;
      if (part && !plot.hidden) plot.closest("details")?.setAttribute("open", "");
    }
    document.getElementById("nothing-found").hidden = found > 0;
  });
  const fold = (open) => () => {
    for (const example of document.querySelectorAll("details.example")) example.open = open;
  };
  document.getElementById("unfold")?.addEventListener("click", fold(true));
  document.getElementById("fold")?.addEventListener("click", fold(false));

  // ------------------------------------------------------------------ plots
  const waiting = [...document.querySelectorAll("script.figure")];
  if (!waiting.length || typeof Bokeh === "undefined") return;
  const logCounts = document.getElementById("log-counts");
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  const dress = (plot) => {
    const scale = plot.name ?? (logCounts?.checked ? "log" : "linear");
    const [text, line, panel] = ["muted", "line", "panel"].map(colour);
    for (const axis of [...plot.below, ...plot.left]) {
      axis.setv({axis_label_text_color: text, major_label_text_color: text, axis_line_color: line, major_tick_line_color: line});
    }
    for (const axis of plot.left) axis.visible = axis.name === scale;
    for (const part of plot.center) {
      if (part.type === "Grid") part.setv({grid_line_color: line, visible: part.name === scale});
      if (part.name === "bound") part.line_color = colour("bound");
    }
    for (const bars of plot.renderers) {
      const [barScale, layer] = bars.name.split(" ");
      const fill = colour(layer === "all" ? "dropped" : "kept");
      bars.glyph.setv(layer === "line" ? {line_color: {value: fill}} : {fill_color: {value: fill}, line_color: {value: panel}});
      bars.visible = barScale === scale;
    }
  };
  const dressAll = () => {
    for (const page of Bokeh.documents) page.roots().forEach(dress);
  };
  logCounts?.addEventListener("change", dressAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dressAll);

  const draw = async (script) => {
    if (script.dataset.drawn) return;
    script.dataset.drawn = "started";
    const target = document.getElementById(script.dataset.plot);
    await Bokeh.embed.embed_item(JSON.parse(script.textContent), target.id);
    Bokeh.documents.at(-1).roots().forEach(dress);
    target.dataset.drawn = "yes";
  };
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      draw(entry.target.nextElementSibling);
    }
  }, {rootMargin: "800px"});
  for (const script of waiting) watcher.observe(document.getElementById(script.dataset.plot));
})();
