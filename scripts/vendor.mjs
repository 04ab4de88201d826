// Makes vendor/onnxruntime/ for the npm package: the libraries of onnxruntime-node for the platforms that infer-batch
// supports. Users then install neither other platforms' libraries nor a package whose install script downloads CUDA
// files (docs/decisions/packages-and-build.md).
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const project = fileURLToPath(new URL("..", import.meta.url));
const source = join(project, "node_modules/onnxruntime-node");
const target = join(project, "vendor/onnxruntime");
const platforms = ["linux/x64", "linux/arm64", "darwin/arm64"];
/** The libraries under the names that the binding loads. The macOS package also contains the library under another name. */
const libraries = /^(?:onnxruntime_binding\.node|libonnxruntime\.so\.1|libonnxruntime\.1\.dylib)$/;

const { version, license } = JSON.parse(readFileSync(join(source, "package.json"), "utf8"));
rmSync(target, { recursive: true, force: true });
for (const platform of platforms) {
  const folder = join("bin/napi-v6", platform);
  mkdirSync(join(target, folder), { recursive: true });
  const names = readdirSync(join(source, folder)).filter((name) => libraries.test(name));
  if (names.length !== 2) {
    throw new Error(`onnxruntime-node ${version} has other files for ${platform}: ${names.join(", ")}`);
  }
  for (const name of names) {
    copyFileSync(join(source, folder, name), join(target, folder, name));
  }
}
writeFileSync(
  join(target, "package.json"),
  `${JSON.stringify({ name: "onnxruntime-node", version, license }, null, 1)}\n`,
);
writeFileSync(
  join(target, "LICENSE"),
  `ONNX Runtime ${version}, https://github.com/microsoft/onnxruntime

MIT License

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
`,
);
