package client

import "testing"

func TestHealthOfServices(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	for service, want := range map[string]Health{
		"": Serving, "guestd.v1.FileService": Serving, "guestd.v1.NoService": ServiceUnknown,
	} {
		if got, err := c.Health(t.Context(), service); got != want || (err != nil) != (want == ServiceUnknown) {
			t.Errorf("%q is %s, %v; want %s", service, got, err, want)
		}
	}
}
