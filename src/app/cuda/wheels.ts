/** A wheel of the Python Package Index that holds libraries of CUDA. */
export interface Wheel {
  /** The requirement of pip: project and version. */
  readonly requirement: string;
  readonly file: string;
  /** Of the file, which this program has been tried with. */
  readonly sha256: string;
}

/** The version of onnxruntime-node that the first wheel belongs to: both are built from the same commit. */
export const wheelsFor = "1.30.0";

/** ONNX Runtime's providers, and the libraries of CUDA 13.0 and cuDNN 9 that they load. */
export const wheels: readonly Wheel[] = [
  {
    requirement: `onnxruntime-gpu==${wheelsFor}`,
    file: "onnxruntime_gpu-1.30.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    sha256: "4fbf0c5d7b5fb99266c2e8a802e3e64af68bdc383e0f3c7349b985f1087eedaa",
  },
  {
    requirement: "nvidia-cublas==13.0.2.14",
    file: "nvidia_cublas-13.0.2.14-py3-none-manylinux_2_27_x86_64.whl",
    sha256: "0cf238ffdbe46c00cb9aa98e7bca745c223a5ca5a53e686ac8b3e5a08fe80d6c",
  },
  {
    requirement: "nvidia-cuda-nvrtc==13.0.88",
    file: "nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
    sha256: "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
  },
  {
    requirement: "nvidia-cuda-runtime==13.0.96",
    file: "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
  },
  {
    requirement: "nvidia-cudnn-cu13==9.14.0.64",
    file: "nvidia_cudnn_cu13-9.14.0.64-py3-none-manylinux_2_27_x86_64.whl",
    sha256: "024ce8f7571d322991ecadbe82907df2e89b5f36597d03436413ec6dd7c9fe54",
  },
  {
    requirement: "nvidia-cufft==12.0.0.61",
    file: "nvidia_cufft-12.0.0.61-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256: "6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3",
  },
  {
    requirement: "nvidia-curand==10.4.0.35",
    file: "nvidia_curand-10.4.0.35-py3-none-manylinux_2_27_x86_64.whl",
    sha256: "1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc",
  },
  {
    requirement: "nvidia-nvjitlink==13.0.88",
    file: "nvidia_nvjitlink-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
    sha256: "13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b",
  },
];
