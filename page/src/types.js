/**
 * The explanation document, version 4, as `docs/explanation-schema.json` describes it.
 *
 * @typedef {{side: number, levels: string, max: number}} PlaceMap
 * @typedef {[number, number, number, number]} Box top, left, bottom, right
 *
 * @typedef {object} TreeNode
 * @property {string} id
 * @property {string} parent
 * @property {number} level
 * @property {string} name
 * @property {number[]} capsules
 * @property {number} row
 * @property {number} column
 * @property {number} activity
 * @property {number} share
 * @property {Box} place
 * @property {Box} region
 * @property {Box | null} original
 *
 * @typedef {object} Tree
 * @property {"classes" | "concepts"} about
 * @property {number} index
 * @property {string} name
 * @property {number} value
 * @property {number} neutral
 * @property {number} share
 * @property {boolean} strict
 * @property {number} image_size
 * @property {TreeNode[]} nodes
 *
 * @typedef {{label: string | null, diagnosis: string, probability: number, picture: string | null}} Known
 * @typedef {Known & {presence: number, has: boolean | null}} KnownPrototype
 * @typedef {Known & {distance: number}} KnownNeighbour
 * @typedef {{concept: string, cases: KnownPrototype[]}} ConceptPrototypes
 *
 * @typedef {object} Concept
 * @property {string} name
 * @property {number} presence
 * @property {boolean} seen
 * @property {boolean | null} truth
 * @property {PlaceMap | null} map
 *
 * @typedef {object} Reasoning
 * @property {string[]} classes
 * @property {string[]} concepts
 * @property {number} temperature
 * @property {number[][]} weight
 * @property {number[]} bias
 * @property {number[]} present
 * @property {number[]} absent
 * @property {number[]} threshold
 * @property {number[]} group
 * @property {"presence" | "logit" | "activation"} scale
 *
 * @typedef {object} Counterfactual
 * @property {Record<string, boolean>} changes
 * @property {string} diagnosis
 * @property {string} was
 * @property {number[]} presence
 * @property {number[]} before
 * @property {number[]} after
 *
 * @typedef {object} Reasons
 * @property {number[]} presence
 * @property {number[][]} contributions
 * @property {Counterfactual | null} counterfactual
 * @property {string} sentence
 *
 * @typedef {{name: string, value: number, values: number[], picture: string, sentence: string}} Traversal
 *
 * @typedef {object} Case
 * @property {string} name
 * @property {string | null} picture
 * @property {number} size
 * @property {string} diagnosis
 * @property {Record<string, number>} probabilities
 * @property {string[] | null} possible
 * @property {boolean | null} abstain
 * @property {string | null} truth
 * @property {string | null} method of the maps; null where there are none
 * @property {PlaceMap | null} class_map
 * @property {number | null} residual the largest part of a target's change that its shares miss
 * @property {string | null} choice how a context chose the evidence; null without one
 * @property {Concept[]} concepts
 * @property {Tree[]} trees
 * @property {KnownNeighbour[]} similar
 * @property {Reasons | null} reasons
 * @property {Reasoning | null} reasoning of this image alone, before that of the model
 * @property {{lines: string[]} | null} strict
 * @property {Traversal[]} traversals
 * @property {string[]} notes
 *
 * @typedef {object} Model
 * @property {string} kind
 * @property {string[]} classes
 * @property {string[]} concepts
 * @property {number} image_size
 * @property {Reasoning | null} reasoning
 *
 * @typedef {object} ExplanationDocument
 * @property {number} version
 * @property {string} title
 * @property {Model} model
 * @property {Case[]} cases
 * @property {ConceptPrototypes[]} prototypes
 * @property {string[]} errors
 */
export {};
