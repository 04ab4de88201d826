/** Removes the places in ONNX Runtime's source, and the C++ functions after them, from a message. */
export function withoutSource(message: string): string {
  let text = message.replace(/^\[ONNXRuntimeError\] : \d+ : \w+ : /, "");
  for (let place = sourcePlace.exec(text); place !== null; place = sourcePlace.exec(text)) {
    const from = place.index + place[0].length;
    text = text.slice(0, place.index) + text.slice(functionEnd(text, from));
  }
  return text.trim();
}

/** Matches "/onnxruntime_src/onnxruntime/core/graph/model.cc:202 ". */
const sourcePlace = /\/\S*\.(?:cc|cpp|cxx|cu|cuh|h|hpp):\d+ /;
/** Matches "void onnxruntime::Model::Load", up to the parameters. */
const functionHead = /^[\w:<>,&*~ ]*\w::[\w:<>,&*~ ]+$/;

/** Returns the index after a function with its parameters; `from` if there is none. */
function functionEnd(text: string, from: number): number {
  const open = text.indexOf("(", from);
  if (open < 0 || !functionHead.test(text.slice(from, open))) {
    return from;
  }
  let depth = 0;
  for (let at = open; at < text.length; at += 1) {
    const letter = text[at] ?? "";
    if ("(<[".includes(letter)) {
      depth += 1;
    } else if (")>]".includes(letter)) {
      depth -= 1;
    } else if (letter === " " && depth === 0 && !/^ (?:const|noexcept|\[with) ?/.test(text.slice(at, at + 10))) {
      return at + 1;
    }
  }
  return text.length;
}

/** What to do without the locale of text models. C.utf8 has the same rules for the case of letters. */
export const installLocale =
  "install it: apt-get install locales && localedef -i en_US -f UTF-8 en_US.UTF-8; or, without being root: mkdir locale && ln -s /usr/lib/locale/C.utf8 locale/en_US.utf8 && export LOCPATH=$PWD/locale";

/** Returns why ONNX Runtime refuses a model, and a hint for its author; names the versions if they do not fit. */
export function refusalOf(message: string): { readonly found: string; readonly hint: string } {
  const said = withoutSource(message);
  const [, opset, domain, newest] =
    /Opset (\d+) is under development.* domain (\S+) is till opset (\d+)/.exec(said) ?? [];
  if (opset !== undefined) {
    return {
      found: `it needs opset ${opset} of ${domain}; this ONNX Runtime has opsets up to ${newest}`,
      hint: `export it with opset ${newest} or lower (torch.onnx.export: opset_version; skl2onnx: target_opset), or convert it with onnx.version_converter`,
    };
  }
  const [, version, most] = /Unsupported model IR version: (\d+), max supported IR version: (\d+)/.exec(said) ?? [];
  if (version !== undefined) {
    return {
      found: `it has IR version ${version}; this ONNX Runtime reads IR versions up to ${most}`,
      hint: `save it with an older version of the onnx package, or set model.ir_version = ${most} before onnx.save`,
    };
  }
  const [, locale] = /Failed to construct locale with name:([\w.@-]+)/.exec(said) ?? [];
  if (locale !== undefined) {
    return {
      found: `it changes the case of texts by the rules of the locale ${locale}, which this machine does not have`,
      hint: installLocale,
    };
  }
  return { found: said, hint: "check it with Python: onnxruntime.InferenceSession(path)" };
}
