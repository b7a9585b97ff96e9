import { misuse } from "./errors.js";
import { closest } from "./similar.js";

/** Lets the methods of an object be used without it, as in `const { step } = task`. */
export function bindMethods(self: object): void {
  const methods = Object.getOwnPropertyDescriptors<object>(Object.getPrototypeOf(self) as object);
  for (const [name, { value }] of Object.entries(methods)) {
    if (typeof value === "function" && name !== "constructor") {
      const bound = (value as () => unknown).bind(self);
      Object.defineProperty(self, name, { value: bound, writable: true, configurable: true });
    }
  }
}

type Class = abstract new (...args: never[]) => object;

/**
 * Lets a misspelled method of a class throw UsageError with the line of the agent's code. Other unknown names are
 * undefined as usual: tests and loggers look for many of them.
 */
export function explained(cls: Class): void {
  const prototype = cls.prototype as object;
  const parent = new Proxy(Object.prototype, {
    get(target, name, self) {
      if (
        typeof name !== "string" ||
        name in target ||
        !Object.prototype.isPrototypeOf.call(prototype, self as object)
      ) {
        return Reflect.get(target, name, self) as unknown;
      }
      const known = [...Object.getOwnPropertyNames(prototype), ...Object.keys(self as object)];
      const meant = name.length < 3 ? undefined : closest(name, known);
      if (meant !== undefined) {
        throw misuse(`${cls.name} has no '${name}'; did you mean ${meant}?`);
      }
      return undefined;
    },
  });
  Object.setPrototypeOf(prototype, parent);
}
