package conformance

import pb "guestd.internal/proto/guestd/v1"

// inputWindow is how much input a call keeps beyond what guestd has said to have:
// as much as guestd takes in advance, so that nothing waits behind it.
const inputWindow = 1 << 20

// input sends bytes of stdin or for the terminal, in frames of at most size bytes,
// whether guestd is ready for them or not.
func (c *processCall) input(data []byte, size int) {
	for len(data) > 0 {
		n := min(len(data), size)
		frame := &pb.ProcessInput{Offset: c.fed, Data: data[:n]}
		c.put(&pb.ProcessRequest{Request: &pb.ProcessRequest_Input{Input: frame}})
		c.fed += uint64(n)
		data = data[n:]
	}
}

// stream is input at the pace at which guestd takes it, and the end of it. It
// needs somebody who receives meanwhile.
func (c *processCall) stream(data []byte, size int) {
	for len(data) > 0 {
		n := min(len(data), size)
		if !c.waitForRoom(n) {
			return
		}
		c.input(data[:n], n)
		data = data[n:]
	}
	c.closeInput()
}

// waitForRoom waits until n bytes more fit into the window; false: nobody wants
// them any more.
func (c *processCall) waitForRoom(n int) bool {
	for {
		c.mu.Lock()
		accepted, closed := c.accepted, c.closed
		c.mu.Unlock()
		switch {
		case closed:
			return false
		case c.fed+uint64(n) <= accepted+inputWindow:
			return true
		}
		select {
		case <-c.taken:
		case <-c.sent:
			return false
		}
	}
}

// closeInput sends the end of the input.
func (c *processCall) closeInput() {
	end := &pb.ProcessCloseInput{Offset: c.fed}
	c.put(&pb.ProcessRequest{Request: &pb.ProcessRequest_CloseInput{CloseInput: end}})
}

// leave says that the client goes for good.
func (c *processCall) leave() {
	c.left = true
	c.put(&pb.ProcessRequest{Request: &pb.ProcessRequest_Leave{Leave: &pb.ProcessLeave{}}})
}

// signal sends a signal to the tree.
func (c *processCall) signal(number uint32) {
	signal := &pb.ProcessSignal{Signal: number}
	c.put(&pb.ProcessRequest{Request: &pb.ProcessRequest_Signal{Signal: signal}})
}

// resize sends a size of the terminal.
func (c *processCall) resize(rows, columns uint32) {
	size := &pb.TerminalSize{Rows: rows, Columns: columns}
	c.put(&pb.ProcessRequest{Request: &pb.ProcessRequest_Resize{Resize: size}})
}
