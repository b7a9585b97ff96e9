package a2a

// Card describes one agent to its clients, in the terms of A2A 1.0. What the server
// itself knows (interfaces, capabilities, security) is filled in from its running
// configuration, never by the author of the agent.
type Card struct {
	Name             string
	Description      string
	Version          string
	DocumentationURL string
	IconURL          string
	Provider         *Provider
	Skills           []Skill
	InputModes       []string
	OutputModes      []string
	Interfaces       []Interface
	Streaming        bool
	Push             bool
	ExtendedCard     bool
	Security         []SecurityScheme // any one of them is enough
	Extensions       []Extension
	Sparse           bool // what is false is left out, as those want it who sign cards
}

// Provider is who runs the agent.
type Provider struct{ Organization, URL string }

// Skill is one thing that the agent can do.
type Skill struct {
	ID          string
	Name        string
	Description string
	Tags        []string
	Examples    []string
	InputModes  []string
	OutputModes []string
	// JSON Schemas, for clients to read. They are no part of any version's skill: see Extension.
	InputSchema  Raw
	OutputSchema Raw
	Security     []Requirement // any one of them is enough; nil: what the card asks for
}

// Requirement is ways to sign in that are needed together.
type Requirement []RequiredScheme

// RequiredScheme is one of them, by its name in the card, with the scopes that it must have.
type RequiredScheme struct {
	Name   string
	Scopes []string
}

// Interface is one place where the agent answers. Binding is "JSONRPC", "HTTP+JSON" or "GRPC".
// Tenant is what requests of 1.0 must name there; empty: nothing.
type Interface struct{ URL, Binding, Version, Tenant string }

// SecurityScheme is one way to sign in, named Name in the card.
type SecurityScheme struct {
	Name        string
	Kind        SecurityKind
	Description string
	Header      string   // SecurityAPIKey: the header
	Format      string   // SecurityBearer: a hint at the token's form
	URL         string   // SecurityOIDC: discovery document
	Scopes      []string // what a client should ask for
	OAuth2      *OAuth2  // SecurityOAuth2
}

// OAuth2 is how clients get tokens.
type OAuth2 struct {
	// "authorizationCode", "clientCredentials", "deviceCode", "implicit" or "password"; 0.3 knows no "deviceCode"
	Flow             string
	AuthorizationURL string // of "authorizationCode" and "implicit"
	DeviceURL        string // of "deviceCode": where a device is authorized
	TokenURL         string
	RefreshURL       string
	MetadataURL      string
	PKCE             bool              // it is required; 0.3 has no word for it
	Scopes           map[string]string // what each is for
}

// SecurityKind says what a SecurityScheme is.
type SecurityKind uint8

// The kinds of security scheme that a2ad enforces.
const (
	SecurityAPIKey SecurityKind = iota + 1
	SecurityBearer
	SecurityOIDC
	SecurityMTLS
	SecurityOAuth2
)

// Extension is one declared protocol extension.
type Extension struct {
	URI         string
	Description string
	Required    bool
	Params      Raw
}
