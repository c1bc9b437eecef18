//! Optimizers by name, with PyTorch's forms and defaults: `AdamW::new(1e-3).weight_decay(0.1)`.

use shardgrad_graph::Optimizer;

macro_rules! optimizer {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident = $default:expr),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name {
            lr: f64,
            $($field: f64,)*
        }

        impl $name {
            /// With this learning rate.
            #[must_use]
            pub fn new(lr: f64) -> Self {
                Self { lr, $($field: $default),* }
            }

            $(
                $(#[$field_doc])*
                #[must_use]
                pub fn $field(mut self, value: f64) -> Self {
                    self.$field = value;
                    self
                }
            )*
        }

        impl From<$name> for Optimizer {
            fn from(o: $name) -> Self {
                Optimizer::$name { lr: o.lr, $($field: o.$field),* }
            }
        }
    };
}

optimizer! {
    /// Stochastic gradient descent.
    Sgd {
        /// Factor of the parameter that is added to its gradient; 0 unless set.
        weight_decay = 0.0
    }
}
optimizer! {
    /// Gradient descent with momentum.
    Momentum {
        /// The part of the momentum that is kept; 0.9 unless set.
        momentum = 0.9,
        /// Factor of the parameter that is added to its gradient; 0 unless set.
        weight_decay = 0.0
    }
}
optimizer! {
    /// Adam (Kingma and Ba 2015).
    Adam {
        /// Decay of the first moment; 0.9 unless set.
        beta1 = 0.9,
        /// Decay of the second moment; 0.999 unless set.
        beta2 = 0.999,
        /// Added to the root of the second moment; 1e-8 unless set.
        eps = 1e-8,
        /// Factor of the parameter that is added to its gradient; 0 unless set.
        weight_decay = 0.0
    }
}
optimizer! {
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    AdamW {
        /// Decay of the first moment; 0.9 unless set.
        beta1 = 0.9,
        /// Decay of the second moment; 0.999 unless set.
        beta2 = 0.999,
        /// Added to the root of the second moment; 1e-8 unless set.
        eps = 1e-8,
        /// The parameter decays by the learning rate times this; 0.01 unless set.
        weight_decay = 0.01
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_model_files() {
        let by_name = |name: &str| Optimizer::named(name).unwrap();
        assert_eq!(by_name("sgd"), Sgd::new(1e-3).into());
        assert_eq!(by_name("momentum"), Momentum::new(1e-3).into());
        assert_eq!(by_name("adam"), Adam::new(1e-3).into());
        assert_eq!(by_name("adamw"), AdamW::new(1e-3).into());
    }
}
