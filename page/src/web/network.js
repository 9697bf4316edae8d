/** The network, run by ONNX Runtime on one thread, from what the page holds. */
import { env, InferenceSession, Tensor } from "onnxruntime-web/wasm";
import { unpacked } from "./packed.js";

/** @typedef {Record<string, {data: Float32Array, dims: readonly number[]}>} Outputs by their names */

export class Network {
  /** @param {InferenceSession} session @param {number[]} shape of the input */
  constructor(session, shape) {
    this.session = session;
    this.shape = shape;
  }

  /**
   * @param {import("./prepare.js").Preparation} preparation
   * @param {(words: string) => Promise<void>} say what is being done
   */
  static async start({ channels, size }, say) {
    await say("Unpacking the runtime");
    env.wasm.numThreads = 1; // threads would need a server that isolates the page
    env.wasm.wasmBinary = await unpacked("runtime");
    const model = await unpacked("network", 4);
    await say("Starting the network");
    // to optimise a graph of thousands of nodes takes as long as to start it, and gains nothing measurable
    const settings = { executionProviders: ["wasm"], graphOptimizationLevel: /** @type {const} */ ("disabled") };
    const session = await InferenceSession.create(model, settings);
    return new Network(session, [1, channels, size, size]);
  }

  /** @param {Float32Array} image prepared, in [0, 1] @returns {Promise<Outputs>} */
  async run(image) {
    const found = await this.session.run({ image: new Tensor("float32", image, this.shape) });
    return /** @type {any} */ (found);
  }
}
