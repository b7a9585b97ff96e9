import tseslint from "typescript-eslint";

export default tseslint.config(tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked, {
  languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
  rules: {
    // A function that does not await what it returns is missing in stack traces, which name the agent's line.
    "@typescript-eslint/return-await": ["error", "always"],
    // A name may say what the rest of an object is without.
    "@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true }],
    "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    "@typescript-eslint/no-unnecessary-condition": ["error", { allowConstantLoopConditions: true }],
  },
});
