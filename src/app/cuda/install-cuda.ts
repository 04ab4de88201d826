import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { access, copyFile, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { packageFolder, runtimeLibrary, type Machine, versionFile } from "../../engine/devices/machine.js";
import { JobError, messageOf } from "../../util/errors.js";
import { type Wheel, wheels as allWheels, wheelsFor } from "./wheels.js";

export interface InstallOptions {
  /** The folder that gets the libraries, in `lib`. Wheels that are already in `wheels` are not downloaded. */
  readonly folder: string;
  readonly machine: Pick<Machine, "platform" | "runtime">;
  readonly log: (line: string) => void;
  /** Default: those of ONNX Runtime and CUDA. */
  readonly wheels?: readonly Wheel[];
}

/** Copies what is a library out of a wheel, without its folders. Arguments: wheel, target. */
const unpackScript = `
import os, shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for entry in wheel.infolist():
        name = os.path.basename(entry.filename)
        wanted = ".so" in name and not name.startswith(("libonnxruntime.so", "onnxruntime_")) and ".alt.so" not in name
        if wanted:
            with wheel.open(entry) as library, open(os.path.join(sys.argv[2], name), "wb") as copy:
                shutil.copyfileobj(library, copy, 1 << 20)
`;

/**
 * Puts ONNX Runtime with its CUDA provider, and NVIDIA's libraries, into a folder: from wheels of the Python Package
 * Index, which pip downloads and whose digests are checked. Returns the folder for LD_LIBRARY_PATH.
 * @throws JobError USAGE on another platform, INPUT_CHANGED for a wheel with another digest
 */
export async function installCuda({ folder, machine, log, wheels = allWheels }: InstallOptions): Promise<string> {
  requireFit(machine);
  const [kept, libraries, unpacking] = [join(folder, "wheels"), join(folder, "lib"), join(folder, "lib.part")];
  await rm(unpacking, { recursive: true, force: true });
  await mkdir(kept, { recursive: true });
  await mkdir(unpacking);
  for (const wheel of wheels) {
    const path = join(kept, wheel.file);
    const isGiven = await exists(path);
    if (!isGiven) {
      log(`downloading ${wheel.requirement}`);
      await download(wheel, kept);
    }
    await checkDigest(wheel, path);
    await python(["-c", unpackScript, path, unpacking], `unpacking ${path}`);
    await (isGiven ? undefined : rm(path));
  }
  // ONNX Runtime looks for providers in the folder of its own library, and the loader takes that from LD_LIBRARY_PATH first.
  await copyFile(join(packageFolder(machine), runtimeLibrary), join(unpacking, runtimeLibrary));
  await writeFile(join(unpacking, versionFile), `${machine.runtime.version}\n`);
  await rm(libraries, { recursive: true, force: true });
  await rename(unpacking, libraries);
  return libraries;
}

function requireFit({ platform, runtime }: InstallOptions["machine"]): void {
  if (platform !== "linux/x64") {
    throw new JobError("USAGE", `installing CUDA: it is for Linux on x64; this is ${platform.replace("/", " ")}`, {
      hint: "score with providers: [webgpu] or [cpu]",
    });
  }
  if (runtime.version !== wheelsFor) {
    throw new Error(`the wheels are for onnxruntime-node ${wheelsFor}, and ${runtime.version} is installed`);
  }
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}

async function download({ requirement, file }: Wheel, folder: string): Promise<void> {
  const platforms = ["2_28", "2_27", "2_17", "2_12"].flatMap((one) => ["--platform", `manylinux_${one}_x86_64`]);
  const which = ["--no-deps", "--only-binary=:all:", "--python-version", "3.11", ...platforms];
  await python(["-m", "pip", "download", "--quiet", ...which, "--dest", folder, requirement], `downloading ${file}`);
}

async function python(args: readonly string[], doing: string): Promise<void> {
  try {
    await promisify(execFile)("python3", args, { maxBuffer: 64 * 1024 * 1024 });
  } catch (cause) {
    const lines = messageOf(cause).trim().split("\n");
    throw new JobError("USAGE", `${doing}: python3 ${args.slice(0, 2).join(" ").split("\n")[0]}: ${lines.at(-1)}`, {
      cause,
      hint: "this needs python3 with pip and its package index, or the wheels in the folder `wheels`: docs/gpu.md lists them",
    });
  }
}

async function checkDigest({ file, sha256 }: Wheel, path: string): Promise<void> {
  const digest = createHash("sha256");
  try {
    for await (const bytes of createReadStream(path)) {
      digest.update(bytes as Uint8Array);
    }
  } catch (cause) {
    throw new JobError("USAGE", `reading ${path}: ${messageOf(cause)}`, {
      cause,
      hint: `the package index has no file ${file}; put it there from another machine`,
    });
  }
  const found = digest.digest("hex");
  if (found !== sha256) {
    throw new JobError("USAGE", `checking ${path}: its sha256 is ${found}, not ${sha256}`, {
      hint: "delete the file and try again; if it is the same again, the package index has another file under this name",
    });
  }
}
