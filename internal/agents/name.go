package agents

// ValidName reports whether a text can be the name of an agent.
func ValidName(name string) bool { return validName.MatchString(name) }
