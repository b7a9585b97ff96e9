package agents

// ValidName reports whether an agent may be called so.
func ValidName(name string) bool { return validName.MatchString(name) }
