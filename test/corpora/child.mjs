// Carries out one command after another as the program would, each told by a message and answered by one. Loading the
// native libraries takes longer than most of the corpus's files, so that a process for each command would take minutes.
const main = new URL("../../dist/cli/main.js", import.meta.url).href;
let said = { stdout: "", stderr: "" };
for (const stream of ["stdout", "stderr"]) {
  process[stream].setMaxListeners(0); // each command adds one
  process[stream].write = (text) => {
    said[stream] += text;
    return true;
  };
}

let commands = 0;
process.on("message", async (args) => {
  commands += 1;
  said = { stdout: "", stderr: "" };
  process.exitCode = undefined;
  process.argv = [process.execPath, "infer-batch", ...args];
  // Another query is another evaluation of the module: the command line is parsed and carried out anew.
  await import(`${main}?command=${commands}`);
  const code = process.exitCode ?? 0;
  process.exitCode = undefined;
  process.send?.({ code, ...said, peakKib: process.resourceUsage().maxRSS });
});
