/**
 * e^x of a float32, as glibc computes it (expf of ARM's optimized routines): a table of 2^(i/32) and a polynomial, in
 * doubles. ONNX Runtime calls it for its post transforms; Math.exp, rounded, differs in the last bit now and then.
 */
function expOfFloat(x: number): number {
  if (!(x > -104)) {
    return Number.isNaN(x) ? x : 0;
  }
  if (x > 89) {
    return Number.POSITIVE_INFINITY;
  }
  const scaled = x * turnsPerUnit;
  const turns = scaled + roundingShift - roundingShift;
  const rest = scaled - turns;
  const squared = rest * rest;
  const whole = Math.floor(turns / tableLength);
  const power = (powers[turns - whole * tableLength] ?? 1) * (exponents[whole - leastExponent] ?? 0);
  const high = cubic * rest + quadratic;
  const low = linear * rest + 1;
  return Math.fround((high * squared + low) * power);
}

const tableLength = 32;
const turnsPerUnit = Math.LOG2E * tableLength;
/** Adding and subtracting this number rounds a double to a whole number. */
const roundingShift = 6755399441055744; // 1.5 * 2^52
const cubic = 0.05550361559341535 / tableLength ** 3;
const quadratic = 0.2402284522445722 / tableLength ** 2;
const linear = 0.6931471806916203 / tableLength;
const powers = Float64Array.from({ length: tableLength }, (_, index) => 2 ** (index / tableLength));
const leastExponent = -152;
const exponents = Float64Array.from({ length: 284 }, (_, index) => 2 ** (index + leastExponent));

const { fround } = Math;

/** ComputeLogistic of ONNX Runtime's ml_common.h. */
export function logistic(x: number): number {
  const value = fround(1 / fround(1 + expOfFloat(-Math.abs(x))));
  return x < 0 ? fround(1 - value) : value;
}

const factor = fround(0.147);
const rootOfTwo = fround(Math.SQRT2);
const scale = fround(2 / fround(fround(Math.PI) * factor));
const inverse = fround(1 / factor);

/** ComputeProbit of ONNX Runtime's ml_common.h. */
export function probit(x: number): number {
  const y = fround(fround(2 * x) - 1);
  const log = fround(Math.log(fround(fround(1 - y) * fround(1 + y))));
  const v = fround(scale + fround(0.5 * log));
  const root = fround(Math.sqrt(fround(fround(v * v) - fround(inverse * log))));
  return fround(rootOfTwo * fround((y < 0 ? -1 : 1) * fround(Math.sqrt(fround(root - v)))));
}

/** ComputeSoftmax, in place. */
export function softmax(values: Float32Array | Float64Array): void {
  const most = largest(values);
  let sum = 0;
  for (let index = 0; index < values.length; index += 1) {
    const power = expOfFloat(fround(fround(values[index] ?? 0) - most));
    values[index] = power;
    sum = fround(sum + power);
  }
  for (let index = 0; index < values.length; index += 1) {
    values[index] = fround((values[index] ?? 0) / sum);
  }
}

/** ComputeSoftmaxZero, in place: values near 0 stay near it. */
export function softmaxZero(values: Float32Array | Float64Array): void {
  const most = largest(values);
  const factorOfZeros = expOfFloat(-most);
  let sum = 0;
  for (let index = 0; index < values.length; index += 1) {
    const value = fround(values[index] ?? 0);
    if (value > nearZero || value < -nearZero) {
      const power = expOfFloat(fround(value - most));
      values[index] = power;
      sum = fround(sum + power);
    } else {
      values[index] = (values[index] ?? 0) * factorOfZeros;
    }
  }
  for (let index = 0; index < values.length; index += 1) {
    values[index] = (values[index] ?? 0) / sum;
  }
}

const nearZero = fround(0.0000001);

function largest(values: Float32Array | Float64Array): number {
  let most = -fround(3.4028234663852886e38);
  for (const value of values) {
    most = fround(value) > most ? fround(value) : most;
  }
  return most;
}
