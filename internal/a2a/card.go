package a2a

// Card describes one agent to its clients, in the terms of A2A 1.0. The server fills in interfaces,
// capabilities and security from its configuration. The author of the agent cannot set them.
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
	Sparse           bool // members that are false are omitted, as card signatures require
}

// Provider is the organization that runs the agent.
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
	// JSON Schemas for clients. No protocol version has them in a skill: see Extension.
	InputSchema  Raw
	OutputSchema Raw
	Security     []Requirement // any one of them is enough; nil: what the card asks for
}

// Requirement is a list of security schemes that a caller needs together.
type Requirement []RequiredScheme

// RequiredScheme is one scheme of a Requirement: its name in the card, and the scopes that it must grant.
type RequiredScheme struct {
	Name   string
	Scopes []string
}

// Interface is one address of the agent. Binding is "JSONRPC", "HTTP+JSON" or "GRPC". Tenant is the tenant that
// requests of 1.0 must name there; empty: none.
type Interface struct{ URL, Binding, Version, Tenant string }

// SecurityScheme is one way to sign in, named Name in the card.
type SecurityScheme struct {
	Name        string
	Kind        SecurityKind
	Description string
	Header      string   // SecurityAPIKey: the header
	Format      string   // SecurityBearer: a hint at the token's form
	URL         string   // SecurityOIDC: discovery document
	Scopes      []string // the scopes that a client should request
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
	PKCE             bool              // PKCE is required; 0.3 cannot say so
	Scopes           map[string]string // descriptions, by scope
}

// SecurityKind is the kind of a SecurityScheme.
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
