// What this library sends is what the Python library sends, byte for byte. So each continues the tasks of the other.
import assert from "node:assert/strict";
import { test } from "node:test";

import type { Task } from "../src/index.js";
import { digest, inputs } from "../src/json.js";
import { any, attempt } from "./kit.js";

const deep = (levels: number, inside: unknown = 1): unknown => (levels === 0 ? inside : [deep(levels - 1, inside)]);

// From a2ad._values.inputs and a2ad._values.digest. Texts that are not shown are only compared by their hash.
const vectors: [args: unknown[], json: string | undefined, sha: string][] = [
  [["x"], '{"args":["x"]}', "c33c00ab0dc4d2b22e90c7a9738e90ad3e61b1dc117b2a890558ac8eb239539f"],
  [[1], '{"args":[1]}', "bf804c8a712c3993f2a2cc6bbae878c0e85d24ff865cfaf4496db78711c2c22d"],
  [[0], '{"args":[0]}', "b8ecb204103f57bbf199f729918697359761fdbcd6dc2a9a5fa6aadc3beb7093"],
  [[-0], '{"args":[0]}', "b8ecb204103f57bbf199f729918697359761fdbcd6dc2a9a5fa6aadc3beb7093"],
  [[-5], '{"args":[-5]}', "65436f5e359594b8ceb77bede717e2f40e5ccfe353fd5bfb4811fecae906beaf"],
  [
    [1, "two", null, true],
    '{"args":[1,"two",null,true]}',
    "ef694530ff2614efc845e4cca2b91b6144c043a64a2c73abc3f5023aa1b9cfba",
  ],
  [
    [{ city: "Zürich 🚆", days: 3, none: undefined }],
    '{"args":[{"city":"Zürich 🚆","days":3}]}',
    "5520b1295c8c74ca2f8b6fb3b2b20264e091afab62a8acb1f4ae5d27b5b0e055",
  ],
  [
    [[1.5, 0.1, 1e-5, 1.5e-7, 1e-100, 123456.789, 5e-324, 0.0001, 0.00012]],
    '{"args":[[1.5,0.1,1e-05,1.5e-07,1e-100,123456.789,5e-324,0.0001,0.00012]]}',
    "5c9a3712cfea604ffd0f64cf4301a63f9e8c80b4644dcba78cd0c815f920f5d5",
  ],
  [[1e21], '{"args":[1e+21]}', "a8adf9da7f864c5ad9bcdf7b94f012f0e79f22e320ddcbb972fe0fa496f816b9"],
  [
    [Number.MAX_VALUE],
    '{"args":[1.7976931348623157e+308]}',
    "cd9e98b0b612fcfb852e1d61ffc770fa26eac862b39ecb46affd242ebd2334aa",
  ],
  [[2 ** 53], '{"args":[9007199254740992]}', "aecbefce7aa98d7573fe9659f41ecd8082efa10ed1a542e6a938e8089a8979ea"],
  [[2 ** 60], '{"args":[1152921504606846976]}', "49f1caa56225ae1d6e82d5f1391a7571826973e4c245331ef6847c30956181d6"],
  [
    [9007199254740993n],
    '{"args":[9007199254740993]}',
    "6381286b33d8ccd9a61ee76e064e46abeafd58aa34311446ea117a2766f09b0e",
  ],
  [
    [10n ** 22n],
    '{"args":[10000000000000000000000]}',
    "22ece3467a6af6f44c3194643f25adce919adeb83d445a1756792d00f5a9e677",
  ],
  [
    ['line\nquote"back\\slash\ttab\0\x1f\x7f\u2028'],
    '{"args":["line\\nquote\\"back\\\\slash\\ttab\\u0000\\u001f\x7f\u2028"]}',
    "baa591e79a418963e19f7885f8b04a248f98cdd577366e1be662e9277b17806a",
  ],
  [[Buffer.from("one")], undefined, "867fd242e414798d2e229363fa39e0f61bad11169ec763c0fae9d08552e6a10a"],
  [
    [[Buffer.from("one"), { a: new Uint8Array() }]],
    undefined,
    "97bed560562a5547b39e95716f7ccd65087358ec573f0dac1f0a19229f4a827a",
  ],
  [["x".repeat(20_000)], undefined, "1cb837ed6a472d1a268b7f55313f7213d0080e44d7e89b265455e2a214477cb4"],
  // Lengths are counted in characters: this has 18,000 UTF-16 units, and is sent itself.
  [["🚆".repeat(9000)], undefined, "6247b4912edeea18578a11e349393fed5f88d68f71b8de20a30ac1f9ba507d51"],
  [["🚆".repeat(17_000)], undefined, "805388310a23c94ba4bb28d8ddcf0cf79159278b1a04f08c7cb1ec8207f54e9c"],
  // The members of objects are in the order of their characters: not in that of the program, of JavaScript, which
  // puts numbers first, or of UTF-16 units, where 🚆 comes before U+FFFD.
  [
    [{ b: 1, a: [[], {}] }],
    '{"args":[{"a":[[],{}],"b":1}]}',
    "23a0fc3d7f612cea7bd8827b99867c5f0937a1a7395e95320b87eef400b7e015",
  ],
  [
    [{ "10": 1, "9": 2, a: { "2": [], "1": 0 }, B: {}, é: 1, "\ufffd": 1, "🚆": 1, ab: 2, "": 3 }],
    '{"args":[{"":3,"10":1,"9":2,"B":{},"a":{"1":0,"2":[]},"ab":2,"é":1,"\ufffd":1,"🚆":1}]}',
    "eab087ffd58d5780de5573e03cc5514ba340c74752e687becdb915133a7334f5",
  ],
  [
    [
      { to: "Lyon", by: [{ train: 1, bus: 2 }] },
      { n: 1, m: 2 },
    ],
    '{"args":[{"by":[{"bus":2,"train":1}],"to":"Lyon"},{"m":2,"n":1}]}',
    "8eddfec45cc547c4a47d731a547f7abeb5c7ee24338806923e77df58c193e0c7",
  ],
  [[{ b: "x".repeat(20_000), a: 1 }], undefined, "6b1fecae16049b1f01006370bc2ceea4b890fe7c371e0a4d7a99f382a268bc43"],
  [[deep(57)], undefined, "1cba1f3bfd2185a8a0c6153d162f19101541e99d3f65a03c7ba085dceab343c2"],
  // A value that is too deep is hashed as it is.
  [[deep(57, { b: 1, a: 2 })], undefined, "76c737055107eaf304e037dda99c6ce8061846601bfe8c3b9110e535aa508457"],
];

void test("inputs have the hashes of Python", () => {
  for (const [args, json, sha] of vectors) {
    const sent = inputs(args);
    assert.equal(digest(sent), sha, json ?? sent?.slice(0, 100));
    if (json !== undefined) {
      assert.equal(sent, json);
    }
  }
  assert.equal(inputs([]), undefined);
});

void test("what has no JSON form is compared by the name of its type", () => {
  class Client {
    readonly url = "x";
  }
  const circular: unknown[] = [];
  circular.push(circular);
  assert.equal(
    inputs([new Map(), Client, () => 1, Symbol("s")]),
    '{"args":[{"type":"Map"},{"type":"Client"},{"type":"function"},{"type":"symbol"}]}',
  );
  assert.equal(inputs([Number.NaN]), '{"args":[{"type":"number"}]}');
  assert.equal(inputs([circular]), '{"args":[{"type":"Array"}]}');
});

const status = '{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING","message":{"parts":[{"text":"Looking ü"}]}}}}';
const statusInput =
  '{"statusUpdate":{"status":{"message":{"parts":[{"text":"Looking ü"}]},"state":"TASK_STATE_WORKING"}}}';
const table =
  '{"artifactUpdate":{"artifact":{"artifactId":"table","parts":[{"data":{"rows":[1,2.5,1e-05],"n":null}}],"name":"table"},"append":true}}';
const tableInput =
  '{"artifactUpdate":{"append":true,"artifact":{"artifactId":"table","name":"table","parts":[{"data":{"n":null,"rows":[1,2.5,1e-05]}}]}}}';
const picture =
  '{"artifactUpdate":{"artifact":{"artifactId":"p","parts":[{"raw":"cG5n/w==","mediaType":"image/png","filename":"p.png"}],"name":"pic"}}}';
const pictureInput =
  '{"artifactUpdate":{"artifact":{"artifactId":"p","name":"pic","parts":[{"filename":"p.png","mediaType":"image/png","raw":"cG5n/w=="}]}}}';
const asked =
  '"message":true,"status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"parts":[{"text":"Book it?"}]}},"expects":{"choices":["yes","no"]}';
const askedInput =
  '{"expects":{"choices":["yes","no"]},"message":true,"status":{"message":{"parts":[{"text":"Book it?"}]},"state":"TASK_STATE_INPUT_REQUIRED"}}';
const signedIn =
  '"message":true,"status":{"state":"TASK_STATE_AUTH_REQUIRED","message":{"parts":[{"text":"Sign in"}]}}';
const signedInInput =
  '{"message":true,"status":{"message":{"parts":[{"text":"Sign in"}]},"state":"TASK_STATE_AUTH_REQUIRED"}}';

const programs: [agent: (task: Task) => unknown, events: string[]][] = [
  [
    async (task) => {
      await task.status("Looking ü");
      await task.artifact("table").data({ rows: [1, 2.5, 0.00001], n: null }, { append: true });
      const raw = Uint8Array.from([...Buffer.from("png"), 255]);
      await task.artifact("pic", { id: "p" }).file(raw, { mediaType: "image/png", filename: "p.png" });
      await task.usage({ model: "m", inputTokens: 1 });
      await task.write("hello");
      await task.step("plan", () => 1, { args: ["a", 2] });
      await task.ask("Book it?", { choices: ["yes", "no"], timeout: "1h" });
    },
    [
      status,
      `{"step":{"key":"status#1","name":"status","input":${statusInput}}}`,
      table,
      `{"step":{"key":"artifact:table#1","name":"artifact","input":${tableInput}}}`,
      picture,
      `{"step":{"key":"artifact:p#1","name":"artifact","input":${pictureInput}}}`,
      '{"usage":{"inputTokens":1,"model":"m"}}',
      '{"step":{"key":"usage#1","name":"usage"}}',
      '{"step":{"key":"write:answer#1","name":"write","artifact":"answer"}}',
      '{"artifactUpdate":{"artifact":{"artifactId":"answer","parts":[{"text":"hello"}]},"append":true}}',
      '{"step":{"key":"write:answer#1","name":"write","result":null}}',
      '{"step":{"key":"plan#1","name":"plan","attempts":1,"startedAt":"…","endedAt":"…","input":{"args":["a",2]},"result":1}}',
      `{"wait":{"key":"ask#1",${asked},"for":"3600.000s","input":${askedInput}}}`,
    ],
  ],
  [(task) => task.authRequired("Sign in"), [`{"wait":{"key":"ask#1",${signedIn},"input":${signedInInput}}}`]],
  [
    (task) => task.signal("paid", { timeout: 5 }),
    ['{"wait":{"key":"signal:paid#1","signal":"paid","for":"5.000s","input":{"signal":"paid"}}}'],
  ],
  [
    (task) =>
      task.call(
        "other",
        [{ text: "check" }, { data: { b: [1], a: { "2": 1, "10": 2 } } }, { url: "u", metadata: { k: 1 } }],
        { abandon: true },
      ),
    [
      '{"call":{"key":"call:other#1","agent":"other","message":{"parts":[{"text":"check"},{"data":{"a":{"10":2,"2":1},"b":[1]}},{"metadata":{"k":1},"url":"u"}]},"onParentEnd":"abandon"}}',
      '{"wait":{"key":"call:other#1/wait","tasks":["call:other#1"],"input":{"tasks":["call:other#1"]}}}',
    ],
  ],
  [(task) => task.sleep("24h"), ['{"wait":{"key":"sleep#1","for":"86400.000s","input":{}}}']],
  [(task) => task.sleep(0), ['{"wait":{"key":"sleep#1","for":"0.001s","input":{}}}']], // to the server, zero is no end
  [
    (task) =>
      task.gather(
        () => task.call("b", "1"),
        () => task.call("c", "2"),
      ),
    [
      '{"call":{"key":"gather#1.1/call:b#1","agent":"b","message":{"parts":[{"text":"1"}]}}}',
      '{"call":{"key":"gather#1.2/call:c#1","agent":"c","message":{"parts":[{"text":"2"}]}}}',
      '{"wait":{"key":"gather#1/wait#1","tasks":["gather#1.1/call:b#1","gather#1.2/call:c#1"],"mode":"any","input":{"mode":"any","tasks":["gather#1.1/call:b#1","gather#1.2/call:c#1"]}}}',
    ],
  ],
];

void test("events are those of Python", async () => {
  for (const [agent, events] of programs) {
    const { raw } = await attempt(agent);
    assert.deepEqual(
      raw.map((e) => e.replaceAll(/"\d{4}-\d\d-\d\dT[\d:.]+Z"/g, '"…"')),
      events,
    );
  }
});

void test("a task of the Python library is continued", async () => {
  const ended = { endedAt: "x" };
  const sha = (json: string) => digest(json);
  const steps = [
    { key: "plan#1", kind: "step", name: "plan", inputSha: sha('{"args":["a",2]}'), result: "from Python", ...ended },
    { key: "status#1", kind: "step", name: "status", inputSha: sha(statusInput), ...ended },
    { key: "write:answer#1", kind: "step", name: "write", artifact: "answer", ...ended },
    { key: "pay#1", kind: "step", name: "pay", error: { type: "a2ad.Fail", message: "no money" }, ...ended },
    { key: "sleep#1", kind: "wait", inputSha: sha("{}"), result: { by: "time" }, ...ended },
  ];
  const continues = async (task: Task) => {
    const plan = await task.step("plan", () => any("again"), { args: ["a", 2] });
    await task.status("Looking ü");
    await task.write("other text");
    const failed = await task.step("pay", () => "paid").catch((err: unknown) => String(err));
    await task.sleep("7d");
    return `${plan as string}, ${failed}`;
  };
  const { events } = await attempt(continues, { steps });
  assert.deepEqual(events, [
    {
      statusUpdate: {
        status: { state: "TASK_STATE_COMPLETED", message: { parts: [{ text: "from Python, Fail: no money" }] } },
      },
    },
  ]);
});
