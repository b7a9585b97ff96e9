/** The version of the package, which operators see. */
export const version = "0.1.0";
