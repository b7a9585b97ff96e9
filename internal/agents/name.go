package agents

import "slices"

// ValidName reports whether a text can be the name of an agent.
func ValidName(name string) bool { return validName.MatchString(name) }

// ReservedName reports whether a valid name cannot be that of an agent, because the server uses it itself.
func ReservedName(name string) bool { return slices.Contains(reserved, name) }
