/**
 * The page behind `/openapi`. The plugin's own pages load their script from a public CDN; a server that works offline
 * and keeps to its machine shows the same document with a few lines of its own instead.
 */

export const OPENAPI_PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mlx-dspark API</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark; }
summary { cursor: pointer; font-family: ui-monospace, monospace; }
pre { overflow: auto; padding: .5rem; border: 1px solid #8886; }
</style>
<h1>mlx-dspark API</h1>
<p>The whole document: <a href="/openapi/json">/openapi/json</a></p>
<main>loading…</main>
<script>
const main = document.querySelector("main");
fetch("/openapi/json").then((reply) => reply.json()).then((doc) => {
  main.textContent = "";
  const show = (title, value) => {
    const details = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = title;
    const pre = document.createElement("pre");
    pre.textContent = JSON.stringify(value, null, 2);
    details.append(summary, pre);
    main.append(details);
  };
  for (const [path, methods] of Object.entries(doc.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      show(method.toUpperCase() + " " + path + " — " + operation.summary, operation);
    }
  }
  for (const [name, schema] of Object.entries(doc.components.schemas)) show("#/components/schemas/" + name, schema);
}, (error) => { main.textContent = "could not read the document: " + error.message; });
</script>
</html>
`;
