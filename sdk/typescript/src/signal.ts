/** Abort signals for the agent's code. */
type Listener = Parameters<AbortSignal["addEventListener"]>[1];

/**
 * Makes a new signal fit for the agent's code: what its listeners throw, or their promises, goes to `failed`. Node
 * would end the process for it, and with it all other tasks.
 */
export function guardListeners(signal: AbortSignal, failed: (err: unknown) => void): void {
  const guards = new WeakMap<Listener, Listener>();
  const guarded = (listener: Listener): Listener => {
    const handle: (event: Event) => unknown =
      typeof listener === "function" ? listener.bind(signal) : listener.handleEvent.bind(listener);
    const call = async (event: Event) => await handle(event);
    const guard = guards.get(listener) ?? ((event: Event) => void call(event).catch(failed));
    guards.set(listener, guard);
    return guard;
  };
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  const methods: Pick<AbortSignal, "addEventListener" | "removeEventListener"> = {
    // Node calls this also when the agent sets `onabort`.
    addEventListener(type, listener, options) {
      add(type, guarded(listener), options);
    },
    removeEventListener(type, listener, options) {
      remove(type, guards.get(listener) ?? listener, options);
    },
  };
  for (const [name, value] of Object.entries(methods)) {
    Object.defineProperty(signal, name, { value }); // hidden, as a signal has no members in JSON
  }
}
