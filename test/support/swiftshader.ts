import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildOnce, cacheFolder } from "./build-once.mjs";

/** The variables that give a process a GPU in software; or why there is none. */
export type SoftwareGpu =
  | { readonly env: Readonly<Record<string, string>>; readonly missing?: undefined }
  | { readonly missing: string };

/** Files of Debian's packages: SwiftShader, which computes Vulkan on the CPU, and the loader of Vulkan. */
const files = ["libvk_swiftshader.so", "libvulkan.so.1"];

/** Finds SwiftShader for ONNX Runtime's WebGPU. It is taken from Debian's packages once, into a cache outside of the checkout. */
export function findSoftwareGpu(): SoftwareGpu {
  if (process.platform !== "linux" || process.arch !== "x64") {
    return { missing: "the packages are for Linux x64" };
  }
  const folder = cacheFolder("swiftshader");
  const made = join(folder, "files");
  const failed = buildOnce(made, (making) => {
    const taken = spawnSync("sh", ["-ec", script], { cwd: making, encoding: "utf8" });
    if (taken.status !== 0 || files.some((file) => !existsSync(join(making, "files", file)))) {
      return `apt-get download chromium-common libvulkan1 failed: ${taken.stderr.trim().slice(-300)}`;
    }
    const library = join(made, "libvk_swiftshader.so");
    const manifest = { file_format_version: "1.0.0", ICD: { library_path: library, api_version: "1.3.0" } };
    writeFileSync(join(making, "files/icd.json"), JSON.stringify(manifest));
    mkdirSync(join(making, "files/run"), { mode: 0o700 });
    renameSync(join(making, "files"), made);
    return undefined;
  });
  return failed === undefined
    ? {
        env: { VK_DRIVER_FILES: join(made, "icd.json"), LD_LIBRARY_PATH: made, XDG_RUNTIME_DIR: join(made, "run") },
      }
    : { missing: failed };
}

const script = `
packages="chromium-common libvulkan1"
apt-get download -qq $packages || { apt-get update -qq; apt-get download -qq $packages; }
mkdir files unpacked
for package in *.deb; do dpkg-deb -x "$package" unpacked; done
find unpacked \\( -name libvk_swiftshader.so -o -name 'libvulkan.so.1*' \\) -not -path '*/chromium/libvulkan*' -exec cp -P {} files/ \\;
`;

/** Variables that hide this machine's Vulkan drivers from a process. */
export const noGpu = { VK_DRIVER_FILES: "/nowhere/icd.json", VK_ICD_FILENAMES: "/nowhere/icd.json" };
