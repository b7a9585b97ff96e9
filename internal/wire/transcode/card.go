package transcode

import "github.com/a2ad/a2ad/internal/rawjson"

// schemes03 maps the type of a security scheme to its member.
var schemes03 = map[string]string{
	"apiKey": "apiKeySecurityScheme", "http": "httpAuthSecurityScheme", "oauth2": "oauth2SecurityScheme",
	"openIdConnect": "openIdConnectSecurityScheme", "mutualTLS": "mtlsSecurityScheme",
}

// card rewrites the sign-in schemes of a card and of its skills. The rest of a card is the same.
func card(v []byte) []byte {
	out := []byte{'{'}
	for key, member := range rawjson.Members(v) {
		out = append(rawjson.AppendString(out, string(key)), ':')
		switch string(key) {
		case "securitySchemes":
			out = append(out, '{')
			for name, s := range rawjson.Members(member) {
				kind, _ := rawjson.String(rawjson.Get(s, "type"))
				out = append(append(rawjson.AppendString(out, string(name)), `:{"`+schemes03[kind]+`":`...),
					rename(rawjson.Without(s, "type"), "in", "location")...)
				out = append(out, "},"...)
			}
			out = closeObject(out)
		case "security":
			out = requirements(out, member)
		case "skills":
			out = append(out, '[')
			for skill := range rawjson.Elements(member) {
				out = append(out, '{')
				for key, member := range rawjson.Members(skill) {
					out = append(rawjson.AppendString(out, string(key)), ':')
					if string(key) == "security" {
						out = requirements(out, member)
					} else {
						out = append(out, member...)
					}
					out = append(out, ',')
				}
				out = append(closeObject(out), ',')
			}
			out = closeList(out)
		default:
			out = append(out, member...)
		}
		out = append(out, ',')
	}
	return closeObject(out)
}

// requirements rewrites a list of security requirements.
func requirements(out, list []byte) []byte {
	out = append(out, '[')
	for s := range rawjson.Elements(list) {
		out = append(out, `{"schemes":{`...)
		for name, scopes := range rawjson.Members(s) {
			out = append(append(rawjson.AppendString(out, string(name)), `:{"list":`...), scopes...)
			out = append(out, "},"...)
		}
		out = append(closeObject(out), "},"...)
	}
	return closeList(out)
}

func rename(obj []byte, from, to string) []byte {
	out := []byte{'{'}
	for key, member := range rawjson.Members(obj) {
		name := string(key)
		if name == from {
			name = to
		}
		out = append(append(append(rawjson.AppendString(out, name), ':'), member...), ',')
	}
	return closeObject(out)
}

// closeList ends a list in which a comma follows each element.
func closeList(out []byte) []byte {
	if out[len(out)-1] == ',' {
		out = out[:len(out)-1]
	}
	return append(out, ']')
}

// closeObject ends an object in which a comma follows each member.
func closeObject(out []byte) []byte {
	if out[len(out)-1] == ',' {
		out = out[:len(out)-1]
	}
	return append(out, '}')
}
