// Draws the figures. Colours are tokens ("@c1", "@c1/0.3") that name custom properties of the
// style sheet, so light, dark and print need no second specification.
(() => {
  "use strict";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)");
  const plots = [...document.querySelectorAll(".plot")];
  const visible = new Set();

  function resolve(value, styles) {
    if (typeof value === "string" && value.startsWith("@")) {
      const [name, opacity] = value.slice(1).split("/");
      const colour = styles.getPropertyValue(`--${name}`).trim();
      if (!opacity) return colour;
      const hex = colour.slice(1);
      const part = (i) => parseInt(hex.slice(2 * i, 2 * i + 2), 16);
      return `rgba(${part(0)},${part(1)},${part(2)},${opacity})`;
    }
    if (Array.isArray(value)) return value.map((item) => resolve(item, styles));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(v, styles)]));
    }
    return value;
  }

  function draw(plot) {
    const specs = JSON.parse(document.getElementById(`${plot.dataset.figure}-data`).textContent);
    const chosen = plot.closest("figure").querySelector("input:checked");
    const styles = getComputedStyle(document.documentElement);
    const { data, layout } = resolve(specs[chosen ? Number(chosen.value) : 0], styles);
    layout.font.family = styles.fontFamily;
    layout.dragmode = coarse.matches ? false : "zoom"; // a finger scrolls the page
    return Plotly.react(plot, data, layout, {
      responsive: true,
      displaylogo: false,
      // a list of its own: the default one can hold a button that uploads the chart
      modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
      toImageButtonOptions: { filename: plot.dataset.figure, scale: 2 },
    }).then(() => {
      // the label says in words what they show, and the buttons beside them stay reachable
      plot.querySelectorAll(".main-svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
    });
  }

  // figures of a regime that share an axis show the same block and the same stretch of it
  function others(plot) {
    const axis = plot.dataset.axis;
    if (!axis) return [];
    return [...plot.closest("section").querySelectorAll(`.plot[data-axis="${axis}"]`)].filter(
      (other) => other !== plot,
    );
  }

  const label = (input) => input.closest("label").textContent.trim();

  function onChoice(plot, input) {
    draw(plot);
    for (const other of others(plot)) {
      const inputs = [...other.closest("figure").querySelectorAll("input")];
      const same = inputs.find((one) => label(one) === label(input));
      if (!same || same.checked) continue;
      same.checked = true;
      if (visible.has(other)) draw(other);
    }
  }

  function onZoom(plot) {
    const range = plot._fullLayout.xaxis.range;
    for (const other of others(plot)) {
      const own = other._fullLayout?.xaxis.range;
      if (own && range.some((end, i) => Math.abs(end - own[i]) > 1e-6)) {
        Plotly.relayout(other, { "xaxis.range": [...range] });
      }
    }
  }

  // arrows pan, plus and minus zoom, 0 resets
  function onKey(event) {
    const axis = event.currentTarget._fullLayout?.xaxis;
    if (!axis || event.ctrlKey || event.metaKey || event.altKey) return;
    const [low, high] = axis.range;
    const width = high - low;
    const moves = {
      ArrowLeft: [-0.2, -0.2],
      ArrowRight: [0.2, 0.2],
      "+": [0.25, -0.25],
      "=": [0.25, -0.25],
      "-": [-0.5, 0.5],
    };
    if (event.key === "0") {
      const plot = event.currentTarget;
      draw(plot).then(() => onZoom(plot));
    } else if (moves[event.key]) {
      const [a, b] = moves[event.key];
      Plotly.relayout(event.currentTarget, {
        "xaxis.range": [low + a * width, high + b * width],
      });
    } else {
      return;
    }
    event.preventDefault();
  }

  const watcher = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        watcher.unobserve(target);
        visible.add(target);
        draw(target).then(() => {
          if (target.dataset.axis) target.on("plotly_relayout", () => onZoom(target));
        });
      }
    },
    { rootMargin: "600px" },
  );

  for (const plot of plots) {
    watcher.observe(plot);
    plot.addEventListener("keydown", onKey);
    const figure = plot.closest("figure");
    figure.addEventListener("change", (event) => onChoice(plot, event.target));
  }

  dark.addEventListener("change", () => visible.forEach(draw));

  // paper is light and shows everything
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((details) => (details.open = true));
    document.documentElement.classList.add("paper");
    plots.forEach(draw);
  });
  addEventListener("afterprint", () => {
    opened.forEach((details) => (details.open = false));
    document.documentElement.classList.remove("paper");
    plots.forEach(draw);
  });
})();
