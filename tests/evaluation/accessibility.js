// Checks a page with axe in Debian's Chromium, at two widths:
//   npm install axe-core puppeteer-core
//   node tests/evaluation/accessibility.js $PWD/card/card.html
const puppeteer = require("puppeteer-core"), fs = require("fs");
(async () => {
  const browser = await puppeteer.launch({executablePath: "/usr/bin/chromium", args: ["--no-sandbox"]});
  const page = await browser.newPage();
  const asked = [];
  page.on("request", r => { if (!r.url().startsWith("file:") && !r.url().startsWith("data:")) asked.push(r.url()); });
  for (const width of [1280, 400]) {
    await page.setViewport({width, height: 900});
    await page.goto("file://" + process.argv[2], {timeout: 120000});
    await page.evaluate(fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    const found = await page.evaluate(() => axe.run());
    console.log(width, "violations:", found.violations.length, "passes:", found.passes.length, "incomplete:", found.incomplete.map(v => v.id));
    for (const v of found.violations) console.log(" ", v.id, v.impact, v.nodes.length, v.nodes[0].html.slice(0, 160));
  }
  console.log("requests to other hosts:", asked.length);
  await browser.close();
})();
