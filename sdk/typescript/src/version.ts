/** The version of this library: that of package.json. */
export const version = "0.2.0";
