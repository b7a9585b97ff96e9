// Typed results and answers, with a real schema library. `tsc` checks the types when it compiles this file.
import assert from "node:assert/strict";
import { test } from "node:test";

import { z } from "zod";

import { Message, ValidationError, type Json, type Recordable, type Schema, type Task } from "../src/index.js";
import { crashEverywhere, run } from "../src/testing.js";

const Trip = z.object({ city: z.string(), days: z.number().default(1) });
/** Compiles with the argument `true` only if the types are equal. */
const same = <A, B>(equal: [A] extends [B] ? ([B] extends [A] ? true : false) : false) => {
  assert.ok(equal);
};

void test("an answer has the type of its schema", async () => {
  const asks = async (task: Task) => {
    const trip = await task.ask("Where?", { returns: Trip });
    same<typeof trip, { city: string; days: number }>(true);
    const sure = await task.ask("Sure?", { choices: ["yes", "no"] });
    same<typeof sure, "yes" | "no">(true);
    const name = await task.ask("Who?");
    same<typeof name, string>(true);
    const age = await task.ask<{ age: number }>("How old?", { schema: { type: "object" } });
    return `${trip.city} ${trip.days} ${sure} ${name} ${age.age}`;
  };
  const r = await crashEverywhere(asks, "x", { answers: [{ city: "Lyon" }, "yes", "Ann", { age: 7 }] });
  assert.equal(r.text, "Lyon 1 yes Ann 7");
});

void test("the client gets the JSON Schema of what it may answer", async () => {
  const r = await run((task) => task.ask("Where?", { returns: Trip }), "x", { answers: [{ city: "Lyon" }] });
  const [question, expects] = r.events[0]?.statusUpdate?.status.message?.parts ?? [];
  assert.equal(question?.text, "Where?");
  const { schema } = expects?.data as { schema: { type: string; required: string[] } };
  assert.deepEqual([schema.type, schema.required], ["object", ["city"]]); // the default makes days optional
});

void test("an answer that does not fit can be asked for again", async () => {
  const Even = z.object({ n: z.number().refine((n) => n % 2 === 0, "must be even") });
  const asks = async (task: Task) => {
    for (;;) {
      try {
        return await task.ask("An even number?", { returns: Even });
      } catch (err) {
        assert.ok(err instanceof ValidationError);
        await task.status(err.issues.join());
      }
    }
  };
  const r = await crashEverywhere(asks, "x", { answers: [{ n: 1 }, { n: 2 }] });
  assert.deepEqual([r.data, r.questions.length], [{ n: 2 }, 2]);
  assert.match(JSON.stringify(r.events), /n: must be even/);
});

void test("a schema that is no JSON Schema cannot be asked for", async () => {
  const bare: Schema<string> = { "~standard": { validate: (value) => ({ value: String(value) }) } };
  const asks = run((task) => task.ask("?", { returns: bare }), "x");
  await assert.rejects(asks, /cannot be converted to JSON Schema; use zod 4\.2 or later/);
  const mixed = run((task) => task.ask("?", { schema: Trip }), "x");
  await assert.rejects(mixed, /schema must be a JSON Schema; pass a schema of zod or a similar library as returns/);
});

void test("a result comes back as what its schema makes of it", async () => {
  const Paid = z.object({ at: z.coerce.date() });
  const pays = async (task: Task) => {
    const paid = await task.step("pay", () => ({ at: new Date(0) }), { returns: Paid });
    same<typeof paid, { at: Date }>(true);
    await task.sleep("1h");
    return paid.at.getTime();
  };
  assert.equal((await crashEverywhere(pays, "x")).data, 0);
});

type Branded = string & { readonly brand: "id" };

void test("what is JSON already, and an interface, are values", async () => {
  interface Order {
    n: number;
  }
  const order: Order = { n: 1 };
  const orders = async (task: Task) => {
    const any: Json = await task.step("any", (): Json => ({ n: 1 }));
    const { message } = await task.call("b", [{ data: order }]);
    return Message.of({ data: [any, message?.data, await task.signal("go"), await task.ask("?", { schema: {} })] });
  };
  const r = await run(orders, order, { signals: { go: order }, calls: { b: order }, answers: [order] });
  assert.deepEqual(r.data, [order, order, order, order]);
});

void test("the type of a result is that of its JSON", async () => {
  interface Booking {
    at: Date;
    note?: string;
    seats: (number | undefined)[];
  }
  same<Recordable<Booking>, { at: string; note?: string; seats: (number | null)[] }>(true);
  same<Recordable<Json>, Json>(true);
  same<Recordable<{ id: Branded }>, { id: Branded }>(true);
  const r = await run(async (task) => {
    const b = await task.step("book", (): Booking => ({ at: new Date(0), seats: [1, undefined] }));
    same<typeof b.at, string>(true);
    assert.deepEqual(await task.step("boxed", () => [new Number(1), new String("a"), new Boolean(false)]), [1, "a", false]);
    const nothing = await task.step("nothing", () => undefined);
    same<typeof nothing, null>(true);
    const promised = await task.step("promised", () => Promise.resolve("x" as const));
    same<typeof promised, "x">(true);
    const [text, n] = await task.gather(
      () => task.step("text", () => "a"),
      () => task.step("n", () => 1),
    );
    same<typeof text, string>(true);
    same<typeof n, number>(true);
    return [b.at, b.seats, nothing, promised, text, n];
  }, "x");
  assert.deepEqual(r.data, ["1970-01-01T00:00:00.000Z", [1, null], null, "x", "a", 1]);
});
