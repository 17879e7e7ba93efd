// What pages do beyond plain links and forms: they work without it.
"use strict";

async function replaced(url, ...ids) {
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  if (answer.redirected) location.reload();  // to the login: what is shown would go on without being true
  if (answer.redirected || !answer.ok) return false;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const id of ids) {
    const old = document.getElementById(id), fresh = page.getElementById(id);
    if (old && fresh) old.replaceChildren(...fresh.childNodes);
  }
  return true;
}

// The table of nodes follows what is typed, without losing the place of the cursor.
const filter = document.getElementById("filter");
if (filter) {
  let waiting;
  const show = () => {
    const url = "/nodes?" + new URLSearchParams(new FormData(filter));
    replaced(url, "found").then(done => done && history.replaceState(null, "", url)).catch(() => {});
  };
  filter.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 250); });
  filter.addEventListener("submit", event => { event.preventDefault(); show(); });
}

// What is true now is asked for again from time to time.
const now = document.querySelector("[data-refresh]");
if (now) setInterval(() => { if (!document.hidden) replaced("/", "now").catch(() => {}); }, 1000 * Number(now.dataset.refresh));

// An upload tells how far it is.
const upload = document.getElementById("upload");
if (upload) upload.addEventListener("submit", event => {
  event.preventDefault();
  const bar = document.querySelector("#progress progress"), text = document.getElementById("progress-text");
  const model = document.getElementById("model"), request = new XMLHttpRequest();
  document.getElementById("progress").hidden = false;
  request.open("POST", "/upload" + (model ? "?model=" + encodeURIComponent(model.value) : ""));
  request.upload.onprogress = sent => { bar.value = 100 * sent.loaded / sent.total; text.textContent = "sent " + Math.round(bar.value) + " %"; };
  request.upload.onload = () => { bar.removeAttribute("value"); text.textContent = "scoring"; };
  request.onerror = () => { document.getElementById("progress").hidden = true; text.textContent = "the service does not answer"; };
  request.onload = () => {
    document.getElementById("progress").hidden = true;
    const result = document.getElementById("result");
    if (request.status === 200) {
      const page = new DOMParser().parseFromString(request.responseText, "text/html");
      result.replaceChildren(...page.getElementById("result").childNodes);
      return;
    }
    const problem = document.createElement("p");
    problem.className = "problem";
    problem.setAttribute("role", "alert");
    let sentence = "the service did not answer";
    try { sentence = JSON.parse(request.responseText).error; } catch { /* as it is */ }
    problem.textContent = sentence;
    result.replaceChildren(problem);
  };
  request.send(new FormData(upload));
});
