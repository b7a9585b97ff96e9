package interop

import (
	"errors"
	"slices"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
)

func TestCardLeadsToTheAgent(t *testing.T) {
	t.Parallel()
	base := "http://" + sharedReplica(t).api
	for _, agent := range []struct{ path, name, url string }{
		{echoAgent, "echo", base + "/"},
		{"/agents/echo", "echo", base + "/"},
		{scriptAgent, "script", base + "/agents/script"},
	} {
		card := dialAt(t, base, agent.path).card
		if card.Name != agent.name || card.URL != agent.url {
			t.Errorf("the card at %s is of %q at %s, want %q at %s", agent.path, card.Name, card.URL, agent.name,
				agent.url)
		}
		if card.ProtocolVersion != string(a2a.Version) || card.PreferredTransport != a2a.TransportProtocolJSONRPC {
			t.Errorf("the card says %s over %s", card.ProtocolVersion, card.PreferredTransport)
		}
		main := a2a.AgentInterface{Transport: card.PreferredTransport, URL: card.URL}
		if !slices.Contains(card.AdditionalInterfaces, main) {
			t.Errorf("the interfaces %v lack the main one", card.AdditionalInterfaces)
		}
		if !card.Capabilities.Streaming || !card.Capabilities.PushNotifications ||
			card.SupportsAuthenticatedExtendedCard {
			t.Errorf("the card declares %+v, extended card %v", card.Capabilities,
				card.SupportsAuthenticatedExtendedCard)
		}
		if len(card.Skills) == 0 || len(card.DefaultInputModes) == 0 || len(card.DefaultOutputModes) == 0 {
			t.Errorf("the card lacks skills or modes: %+v", card)
		}
	}
}

func TestExtendedCardIsNotConfigured(t *testing.T) {
	t.Parallel()
	base := "http://" + sharedReplica(t).api
	// A client that has seen the card does not even ask; one that knows only the address does.
	if card, err := dialAt(t, base, echoAgent).GetAgentCard(testContext(t)); err != nil || card.Name != "echo" {
		t.Errorf("the card that the client has is %v, %v", card, err)
	}
	blind, err := a2aclient.NewFromEndpoints(testContext(t),
		[]a2a.AgentInterface{{Transport: a2a.TransportProtocolJSONRPC, URL: base}},
		a2aclient.WithJSONRPCTransport(httpClient(t)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blind.GetAgentCard(testContext(t)); !errors.Is(err, a2a.ErrAuthenticatedExtendedCardNotConfigured) {
		t.Errorf("the extended card: %v, want %v", err, a2a.ErrAuthenticatedExtendedCardNotConfigured)
	}
}
