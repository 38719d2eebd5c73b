document.documentElement.classList.add("js");
try {
  const theme = localStorage.getItem("hpc-ml-bench-theme");
  if (theme) document.getElementById("dark").media = theme === "dark" ? "screen" : "not all";
} catch { /* no storage: the system's colours */ }
