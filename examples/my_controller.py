"""A controller of your own: a learning switch that gives every TCP flow one of four queues."""

from ryu.base import app_manager
from ryu.controller import handler, ofp_event
from ryu.lib.packet import ethernet, packet, tcp
from ryu.ofproto import ofproto_v1_3 as of
from ryu.ofproto import ofproto_v1_3_parser as message


class MyController(app_manager.RyuApp):
    OFP_VERSIONS = [of.OFP_VERSION]
    places = {}  # (switch, Ethernet address) -> the port behind which it was seen

    def add_rule(self, switch, priority, match, actions):
        apply = message.OFPInstructionActions(of.OFPIT_APPLY_ACTIONS, actions)
        switch.send_msg(message.OFPFlowMod(switch, priority=priority, match=match, instructions=[apply]))

    @handler.set_ev_cls(ofp_event.EventOFPSwitchFeatures, handler.CONFIG_DISPATCHER)
    def switch_comes(self, event):
        ask = message.OFPActionOutput(of.OFPP_CONTROLLER, of.OFPCML_NO_BUFFER)
        self.add_rule(event.msg.datapath, 0, message.OFPMatch(), [ask])

    @handler.set_ev_cls(ofp_event.EventOFPPacketIn)
    def packet_comes(self, event):
        switch, port = event.msg.datapath, event.msg.match["in_port"]
        content = packet.Packet(event.msg.data)
        frame, segment = content.get_protocol(ethernet.ethernet), content.get_protocol(tcp.tcp)
        self.places[switch.id, frame.src] = port
        way = message.OFPActionOutput(self.places.get((switch.id, frame.dst), of.OFPP_FLOOD))
        actions = [message.OFPActionSetQueue(segment.dst_port % 4), way] if segment else [way]
        if segment and way.port != of.OFPP_FLOOD:
            flow = {"eth_type": 0x0800, "eth_dst": frame.dst, "ip_proto": 6, "tcp_dst": segment.dst_port}
            self.add_rule(switch, 1, message.OFPMatch(**flow), actions)
        switch.send_msg(message.OFPPacketOut(switch, of.OFP_NO_BUFFER, port, actions, event.msg.data))
